#include <algorithm>

#include "rnbd/remote_session_inside.h"
#include "rtrs/base/member_call.h"
#include "rtrs/base/planted.h"

namespace rnbd {
namespace {

// What a volume has given up keeps no other volume of the session from going on.
rtrs::ClientSessionOptions with_unsettled_volumes(rtrs::ClientSessionOptions options) {
    options.unsettled = rtrs::ClientSessionOptions::Unsettled::owner;
    return options;
}

}  // namespace

RemoteSession::Inside::Inside(rtrs::SessionEnvironment its_environment,
                              rtrs::ClientSessionOptions options, RemoteSessionHandler& its_handler)
    : environment(its_environment),
      handler(its_handler),
      session(its_environment, with_unsettled_volumes(std::move(options)), *this),
      catalog(
          session, [this](const CatalogEvent& event) { catalog_event(event); },
          [this](const std::string& why) {
              environment.tracer.trace(rtrs::TraceLevel::warning, "rnbd.session",
                                       session.options().name,
                                       "the server's catalog cannot be read: " + why);
          }),
      statistics(session),
      left_open_timer(environment.clock, this, rtrs::member_call<&Inside::close_left_open>) {}

void RemoteSession::Inside::catalog_event(const CatalogEvent& event) {
    // Volumes that were refused because the server was draining.
    if (event.kind == CatalogEventKind::accepting) {
        for (std::size_t i = 0; i < volumes.size(); ++i) {
            if (volumes[i]->state != VolumeState::open) volumes[i]->look_again();
        }
    }
    const bool sized =
        (event.kind == CatalogEventKind::resized || event.kind == CatalogEventKind::added) &&
        !event.entry.waiting;
    for (std::size_t i = 0; has_entry(event.kind) && i < volumes.size(); ++i) {
        if (volumes[i]->options.name != event.entry.name) continue;
        if (event.kind == CatalogEventKind::waiting) {
            volumes[i]->storage_is_gone();
        } else if (sized && !has(features, Feature::medium) && volumes[i]->blocks_refused == 0) {
            volumes[i]->resized(event.entry.size_bytes);
        } else {
            // The export may be another file or device by now, whose size is not this volume's.
            volumes[i]->look_again();
        }
    }
    handler.on_catalog_event(event);
}

void RemoteSession::Inside::on_link_up() {
    if (!records) records = rtrs::LazyArray<IoRecord>(session.queue_depth());
    handler.on_session_link_up();
    exchange_info();
}

void RemoteSession::Inside::exchange_info() {
    if (asking) return;
    asking = true;
    std::byte message[SessionInfoMessage::wire_bytes];
    SessionInfoMessage{.features = features_known}.emit(message);
    session.submit_user(
        rtrs::Direction::read, message, SessionInfoResponse::wire_bytes,
        [](void* context, std::error_code error, rtrs::Bytes response) {
            static_cast<Inside*>(context)->info_known(error, response);
        },
        this);
}

void RemoteSession::Inside::info_known(std::error_code error, rtrs::Bytes response) {
    asking = false;
    if (error == rtrs::Error::path_lost) {
        // Another path may be left; otherwise the next link up asks again.
        if (session.link_up()) exchange_info();
        return;
    }
    if (error == rtrs::Error::closed) return;
    // A server that does not know the question has no features.
    features = Feature::none;
    if (!error) {
        if (const auto answer = SessionInfoResponse::parse(response)) {
            features = answer->features & features_known;
        }
    }
    ready = true;
    catalog.link_ready();
    // By index: the volumes' owner may make more of them meanwhile.
    for (std::size_t i = 0; i < volumes.size(); ++i) volumes[i]->link_ready();
    close_left_open();
}

void RemoteSession::Inside::close_later(const RemoteVolumeOptions& volume) {
    left_open.push_back(volume);
    close_left_open();
}

bool RemoteSession::Inside::has_volume(const std::string& name) const noexcept {
    return std::ranges::any_of(volumes, [&](const RemoteVolume::Inside* volume) {
        return volume->options.name == name && !volume->closing;
    });
}

// A kernel's server closes a device by force without a word to its client, and gives its id to the
// next one that is opened. A volume that believed to have it would read and write that one.
void RemoteSession::Inside::id_was_given(std::uint32_t device_id,
                                         const RemoteVolume::Inside* volume) {
    // By index: the volumes' owner may make more of them meanwhile.
    for (std::size_t i = 0; i < volumes.size(); ++i) {
        if (volumes[i] != volume) volumes[i]->id_is_of_another(device_id);
    }
}

// The old device id belongs to a session that may be gone, and may be another volume's by now. So
// the volume is opened by its name: a session that has it open answers with its id, any other one
// opens it for a moment.
void RemoteSession::Inside::close_left_open() {
    if (!ready || closing_left_open) return;
    std::erase_if(left_open, [this](const auto& one) { return has_volume(one.name); });
    // A server answers to a close when what it still runs of the volume has ended: so long no other
    // volume could be opened or closed.
    const auto next = std::ranges::find_if(
        left_open, [this](const auto& one) { return !may_still_run_for(one.name); });
    if (next == left_open.end()) return;
    left_open.splice(left_open.begin(), left_open, next);
    closing_left_open = true;
    const RemoteVolumeOptions& one = left_open.front();
    // With the writer and medium of the volume that was left open, so that the server knows who
    // closes it.
    const OpenMessage open{.access_mode = one.access,
                           .device_name = one.name,
                           .writer = has(features, Feature::writer) ? one.writer : 0,
                           .medium = has(features, Feature::medium) ? one.medium : MediumId{}};
    std::byte message[OpenMessage::wire_bytes_max];
    open.emit(message);
    session.submit_user(
        rtrs::Direction::read, std::span(message).first(open.size()), OpenResponse::size(features),
        [](void* context, std::error_code error, rtrs::Bytes response) {
            static_cast<Inside*>(context)->left_open_answered(error, response);
        },
        this);
}

void RemoteSession::Inside::left_open_answered(std::error_code error, rtrs::Bytes response) {
    const auto parsed =
        error ? std::unexpected(ParseError::too_short) : OpenResponse::parse(response);
    if (parsed) id_was_given(parsed->device_id, nullptr);
    if (!parsed || has_volume(left_open.front().name)) return left_closed(error);
    std::byte message[CloseMessage::wire_bytes];
    CloseMessage{.device_id = parsed->device_id}.emit(message);
    session.submit_user(
        rtrs::Direction::write, message, 0,
        [](void* context, std::error_code closed, rtrs::Bytes) {
            static_cast<Inside*>(context)->left_closed(closed);
        },
        this);
}

// If the answer was lost, it is tried again, at once if another path is left.
void RemoteSession::Inside::left_closed(std::error_code error) {
    closing_left_open = false;
    if (error == rtrs::Error::closed) return;
    if (!unanswered(error)) left_open.pop_front();
    close_left_open();
}

void RemoteSession::Inside::on_link_down(std::error_code reason) {
    ready = false;
    handler.on_session_link_down(reason);
    for (std::size_t i = 0; i < volumes.size(); ++i) volumes[i]->link_lost(reason);
}

void RemoteSession::Inside::on_given_up(std::error_code error) {
    for (std::size_t i = 0; i < volumes.size(); ++i) volumes[i]->fail_all_held(error);
    handler.on_session_given_up(error);
}

void RemoteSession::Inside::may_still_run(rtrs::PermitId id, const std::string& volume) {
    if (rtrs::planted(rtrs::PlantedBug::volume_opened_early)) return;
    // One that is known was reported before: what had its permit since was not sent.
    unsettled.try_emplace(id, volume);
}

bool RemoteSession::Inside::may_still_run_for(const std::string& volume) const noexcept {
    return std::ranges::any_of(unsettled, [&](const auto& one) { return one.second == volume; });
}

void RemoteSession::Inside::on_settled(rtrs::PermitId id) {
    const auto entry = unsettled.extract(id);
    if (!entry || may_still_run_for(entry.mapped())) return;
    for (RemoteVolume::Inside* const volume : volumes) {
        if (volume->options.name == entry.mapped()) volume->open_soon();
    }
    left_open_timer.arm(environment.clock.now());
}

IoRecord& RemoteSession::Inside::record(rtrs::PermitId id) {
    return records[static_cast<std::uint32_t>(id)];
}

RemoteSession::RemoteSession(rtrs::SessionEnvironment environment,
                             rtrs::ClientSessionOptions options, RemoteSessionHandler& handler)
    : inside_(std::make_unique<Inside>(environment, std::move(options), handler)) {}
RemoteSession::~RemoteSession() = default;

std::error_code RemoteSession::open() { return inside_->session.open(); }
void RemoteSession::close() { inside_->session.close(); }
rtrs::ClientSession& RemoteSession::rtrs() noexcept { return inside_->session; }

void RemoteSession::set_waiting(std::optional<rtrs::Duration> hold_time,
                                std::optional<rtrs::Duration> fail_fast_time,
                                std::optional<rtrs::ClientSessionOptions::HoldLimit> hold_limit) {
    inside_->session.set_waiting(hold_time, fail_fast_time, hold_limit);
    for (RemoteVolume::Inside* const volume : inside_->volumes) volume->arm_hold();
}

RemoteCatalog& RemoteSession::catalog() noexcept { return inside_->catalog; }
RemoteStatistics& RemoteSession::statistics() noexcept { return inside_->statistics; }
std::uint32_t RemoteSession::waiting() const noexcept {
    std::size_t all = 0;
    for (const RemoteVolume::Inside* const volume : inside_->volumes) all += volume->waiting.size();
    return static_cast<std::uint32_t>(all);
}
const std::string& RemoteSession::name() const noexcept { return inside_->session.options().name; }

}  // namespace rnbd
