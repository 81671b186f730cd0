// Target: sessions, which of its parts a request is for, and the end.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/log/log.h"
#include "rnbd-server/target_inside.h"
#include "rtrs/base/error.h"
#include "rtrs/base/log_rate_limit.h"

namespace rnbd {

using rtrs::from_errno;

namespace {

// A kernel's client that reconnects asks once for each device: if that is refused, the device is
// away until somebody maps it again. More than a server that was killed takes to leave a busy disk.
constexpr rtrs::Duration storage_timeout = std::chrono::seconds(10);

}  // namespace

Target::Target(rtrs::Reactor& reactor, EpochFile& epochs, WriterFile& writers, Reads reads)
    : reactor_(reactor),
      reads_(reads),
      epochs_(epochs),
      writers_(writers),
      opens_timer_(reactor, this, rtrs::member_call<&Target::opens_go_on>),
      storage_timer_(reactor, this, rtrs::member_call<&Target::opens_without_storage_go_on>),
      deferred_(reactor),
      catalog_(reactor, volumes_),
      draining_since_(reactor.now()) {
    for (std::uint32_t i = 0; i < reactor.members(); ++i) {
        pacers_.push_back(std::make_unique<ReadPacer>(
            reactor.member(i), this, [](void* self, BlockRequest& request) {
                static_cast<Target*>(self)->waited(request);
            }));
    }
    writers_.when_written([this] {
        opens_go_on();
        writes_go_on();
    });
}

Target::~Target() { writers_.when_written(nullptr); }

void Target::open_exports(const std::vector<ServerConfig::Export>& exports) {
    // A uuid that is given is not another one's that is found first.
    std::vector<MediumClaims::Claim> given;
    for (const auto& config : exports) {
        if (!config.storage.uuid || config.storage.only_reads()) continue;
        given.push_back(claims_.claim(*config.storage.uuid, config.name).value_or(nullptr));
    }
    for (const auto& config : exports) {
        own(config);
    }
    catalog_.changed();
}

// --- Sessions.

void Target::use_kernel_portals(std::map<std::uint32_t, KernelListener> portals,
                                const std::set<std::uint32_t>& in_use) {
    for (const std::uint32_t id : in_use) portals.insert(kernel_portals_.extract(id));
    kernel_portals_ = std::move(portals);
}

const KernelListener* Target::kernel_portal(std::uint32_t portal) const noexcept {
    const auto found = kernel_portals_.find(portal);
    return found == kernel_portals_.end() ? nullptr : &found->second;
}

// A kernel's client asks for a device path; only exports can be found by it.
std::string Target::export_for(const Session& session, const std::string& asked) const {
    const KernelListener* kernel = kernel_portal(session.session.portal());
    return kernel != nullptr ? kernel->export_for(session.session.name(), asked) : asked;
}

std::error_code Target::on_path(const rtrs::Arrival& arrival) {
    const KernelListener* kernel = kernel_portal(arrival.portal);
    if (kernel == nullptr || kernel->allows(arrival.session, arrival.host)) return {};
    note_turned_away(std::string(arrival.session),
                     fmt::format("no entry of the listener's kernel.allow for this session and {}",
                                 arrival.host));
    return from_errno(EACCES);
}

void Target::note_turned_away(const std::string& session, const std::string& why) {
    const auto times = turned_away_.next(session, why, reactor_.now());
    if (!times) return;
    logger("rnbd.session")
        .warn("{}: turned away: {}{}", printable(session), why, rtrs::how_often(*times));
}

std::error_code Target::on_session_up(rtrs::ServerSession& session) {
    if (draining_ == Draining::on) {
        note_turned_away(session.name(), "the server is being drained");
        return from_errno(EBUSY);
    }
    auto* const made = new Session(*this, session);
    session.context = made;
    sessions_.push_back(made);
    catalog_.session_up(session);
    statistics_.session_up(session);
    logger("rnbd.session").info("{}: up, from {}", printable(session.name()), session.peer_host());
    return {};
}

void Target::on_session_down(rtrs::ServerSession& session) {
    const std::unique_ptr<Session> gone(static_cast<Session*>(session.context));
    session.context = nullptr;
    std::erase(sessions_, gone.get());
    catalog_.session_down(session);
    statistics_.session_down(session);
    for (auto& [id, open] : gone->opens) {
        open.volume->close(open.open);
        closed_one(*open.volume);
    }
    logger("rnbd.session").info("{}: down", printable(session.name()));
}

void Target::on_chunk_gone(void* chunk_context) {
    const std::unique_ptr<Io> gone(static_cast<Io*>(chunk_context));
    unpin(*gone);
}

const SessionStatistics& Target::statistics(const rtrs::ServerSession& session) {
    static const SessionStatistics none;
    const auto* ours = static_cast<const Session*>(session.context);
    return ours != nullptr ? ours->statistics : none;
}

Feature Target::features(const rtrs::ServerSession& session) {
    const auto* ours = static_cast<const Session*>(session.context);
    return ours != nullptr ? ours->features : Feature::none;
}

StatisticsResponse Target::statistics_response(const rtrs::ServerSession& session) {
    const rtrs::ServerSessionStatus status = session.status();
    const SessionStatistics& done = statistics(session);
    return {.queue_depth = status.queue_depth,
            .in_flight = status.in_flight,
            .reads = done.reads,
            .read_bytes = done.read_bytes,
            .writes = done.writes,
            .write_bytes = done.write_bytes,
            .others = done.other,
            .refused = done.refused,
            .storage_errors = done.errors - done.refused,
            .stale = status.stale,
            .p50 = done.latency.percentile(50),
            .p99 = done.latency.percentile(99),
            .longest = done.latency.max()};
}

void Target::on_request(rtrs::ServerOp& op) {
    auto& session = *static_cast<Session*>(op.session().context);
    const auto type = request_type(op.message());
    if (!type) return op.respond(from_errno(to_errno(type.error())));
    switch (*type) {
        case MessageType::session_info:
            return session_info(session, op);
        case MessageType::open:
            return open(session, op, {.until = reactor_.now() + storage_timeout});
        case MessageType::close:
            return close(session, op);
        case MessageType::io:
            return io(session, op);
        case MessageType::extents:
            if (!has(session.features, Feature::extents)) break;
            return extents(session, op);
        case MessageType::session_info_response:
        case MessageType::open_response:
        case MessageType::extents_response:
            break;
    }
    op.respond(from_errno(EINVAL));
}

// --- The end.

void Target::flush_all(std::function<void()> done) {
    ending_ = true;
    flushes_ = volumes_.size() + 1;
    const auto one_done = [this, done = std::move(done)] {
        if (--flushes_ == 0) done();
    };
    for (const auto& volume : volumes_) {
        const auto leaving = leaving_.find(volume.get());
        if (leaving == leaving_.end()) {
            volume->flush([one_done](std::error_code) { one_done(); });
        } else {
            // Flushed, for it is about to go.
            leaving->second.waiting.emplace_back([one_done](std::error_code) { one_done(); });
        }
    }
    one_done();
}

void Target::give_up() {
    opens_wait_no_longer();
    writes_wait_no_longer();
    for (const auto& volume : volumes_) volume->give_up();
}

}  // namespace rnbd
