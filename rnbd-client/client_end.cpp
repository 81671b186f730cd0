// Client: the end of devices, of sessions, and its own.

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/counted.h"
#include "daemon/log/log.h"
#include "rnbd-client/client_session.h"
#include "rtrs/base/assert.h"

namespace rnbd {

namespace {

using PathOperation = rtrs::ClientSession::PathOperation;

// About what a connection takes to close.
constexpr rtrs::Duration closing_time = std::chrono::milliseconds(100);

}  // namespace

void Client::unmap(const std::string& device, Unmap how, Unmapped done) {
    const auto found = std::ranges::find_if(
        mappings_, [&](const auto& one) { return one->config().name == device; });
    if (found == mappings_.end()) {
        return done(command_failed(ControlError::not_found, "no device " + device + " is mapped"));
    }
    Mapping& mapping = **found;
    // One that goes already is only waited for.
    if (how == Unmap::if_unused && !mapping.stopping() && mapping.connections() > 0) {
        return done(command_failed(ControlError::busy,
                                   device + " has " + counted(mapping.connections(), "NBD client") +
                                       "; --force disconnects them"));
    }
    unmapped_[&mapping].push_back(std::move(done));
    mapping.stop(how == Unmap::if_unused ? KernelNbd::Use::refuse : KernelNbd::Use::ignore);
}

void Client::unmap_ended(const Mapping& mapping,
                         const std::expected<Gone, ControlFailure>& result) {
    const auto waiting = unmapped_.find(&mapping);
    if (waiting == unmapped_.end()) return;
    const std::vector<Unmapped> done = std::move(waiting->second);
    unmapped_.erase(waiting);
    for (const auto& call : done) call(result);
}

void Client::on_mapping_used(Mapping& mapping) {
    const KernelDevice& kernel = *mapping.kernel();
    const std::string why =
        kernel.reason().empty() ? " is mounted or used in another way" : ": " + kernel.reason();
    unmap_ended(mapping,
                command_failed(ControlError::busy,
                               kernel.path() + why + "; --force detaches it all the same"));
}

void Client::on_mapping_overdue(Mapping& mapping) {
    const std::string& name = mapping.config().session;
    const auto found = sessions_.find(name);
    RTRS_ASSERT(found != sessions_.end());
    if (only_overdue_on(name)) return cut_off(*found->second);
    logger("rnbd.device")
        .warn(
            "{}: waits for what the server does not answer; others use session {}, so that it is "
            "not cut off",
            mapping.config().name, name);
}

bool Client::only_overdue_on(const std::string& session) const noexcept {
    return std::ranges::all_of(mappings_, [&](const auto& one) {
        return one->config().session != session || one->overdue();
    });
}

// What a server that lives does not answer would keep devices for ever, and with them the daemon.
// Nothing else waits on the session's connections, which go now; the server closes what it had
// open there. They come back when those devices have gone: requests are given up only while there
// is no path, with one they are asked after, which waits as well.
void Client::cut_off(Session& session) {
    rtrs::ClientSession& rtrs = session.remote.rtrs();
    const std::size_t before = session.cut_off.size();
    for (const rtrs::PathStatus& path : rtrs.status().paths) {
        // What was disconnected by an operator stays so.
        using State = rtrs::PathState;
        if (path.state == State::closing || path.state == State::closed) continue;
        if (!rtrs.operate_path(path.label, PathOperation::disconnect))
            session.cut_off.push_back(path.label);
    }
    if (session.cut_off.size() == before) return;
    logger("rnbd.client")
        .warn(
            "{}: its connections are cut off: the server does not answer what its devices wait "
            "for",
            session.config.name);
}

void Client::connect_again(Session& session) {
    if (session.closing) return;
    rtrs::ClientSession& rtrs = session.remote.rtrs();
    std::vector<std::string> still_closing;
    // What is in no such state was removed meanwhile, or told to reconnect.
    for (const rtrs::PathStatus& path : rtrs.status().paths) {
        if (std::ranges::find(session.cut_off, path.label) == session.cut_off.end()) continue;
        if (path.state == rtrs::PathState::closing) still_closing.push_back(path.label);
        if (path.state == rtrs::PathState::closed)
            static_cast<void>(rtrs.operate_path(path.label, PathOperation::reconnect));
    }
    session.cut_off = std::move(still_closing);
    if (!session.cut_off.empty()) session.connect_timer.arm(reactor_.now() + closing_time);
}

void Client::on_mapping_stopped(Mapping& mapping) {
    logger("rnbd.device").info("{}: gone", mapping.config().name);
    const std::string session = mapping.config().session;
    std::expected<Gone, ControlFailure> result = Gone{mapping.loss()};
    if (mapping.kernel() != nullptr && mapping.kernel()->left() && mapping.loss().empty()) {
        result = command_failed(ControlError::busy,
                                mapping.config().name +
                                    " is mounted or used in another way: the kernel keeps it, for "
                                    "the next rnbd-client");
    }
    const WriterNumbers::Life left = mapping.leaves();
    const std::string& name = mapping.config().volume;
    const bool news = left != WriterNumbers::Life{} ? writers_.keep(session, name, left)
                                                    : writers_.forget(session, name);
    if (news) writers_changed();
    // Told when it is gone, and its session with it: who hears it may take its place at once.
    const auto waiting = unmapped_.extract(&mapping);
    const auto tell = [result, calls = waiting ? waiting.mapped() : std::vector<Unmapped>{}] {
        for (const Unmapped& done : calls) done(result);
    };
    std::erase_if(mappings_, [&](const auto& one) { return one.get() == &mapping; });
    const auto found = sessions_.find(session);
    const bool used = std::ranges::any_of(
        mappings_, [&](const auto& one) { return one->config().session == session; });
    if (found != sessions_.end() && !used && (found->second->temporary || stopped_)) {
        found->second->closing = true;
        found->second->closed = [tell](const std::expected<void, ControlFailure>&) { tell(); };
        found->second->remote.close();
        return;
    }
    tell();
    if (found == sessions_.end()) return;
    const bool waits = std::ranges::any_of(mappings_, [&](const auto& one) {
        return one->config().session == session && one->overdue();
    });
    if (waits && only_overdue_on(session)) return cut_off(*found->second);
    if (!waits) connect_again(*found->second);
}

void Client::session_closed(Session& session) {
    const std::string name = session.config.name;
    const Closed closed = std::move(session.closed);
    sessions_.erase(name);
    if (closed) closed({});
    finish_if_done();
}

void Client::stop(std::function<void()> done) {
    stopped_ = std::move(done);
    for (const auto& discovery : discoveries_) discovery->stop();
    // A mapping may end in here.
    std::vector<Mapping*> mappings;
    for (const auto& mapping : mappings_) mappings.push_back(mapping.get());
    for (Mapping* const mapping : mappings) mapping->stop(KernelNbd::Use::leave);
    for (const auto& [name, session] : sessions_) {
        const bool used = std::ranges::any_of(
            mappings_, [&](const auto& one) { return one->config().session == name; });
        if (!used && !session->closing) {
            session->closing = true;
            session->remote.close();
        }
    }
    finish_if_done();
}

void Client::finish_if_done() {
    const bool used = !mappings_.empty() || !sessions_.empty() || !discoveries_.empty();
    if (!stopped_ || used || !sockets_.empty()) return;
    reactor_.post(stopped_);
}

}  // namespace rnbd
