#include "rnbd/remote_session.h"

namespace rnbd {

RemoteSession::Inside::Inside(rtrs::SessionEnvironment its_environment,
                              rtrs::ClientSessionOptions options, RemoteSessionHandler& its_handler)
    : environment(its_environment),
      handler(its_handler),
      session(its_environment, std::move(options), *this),
      catalog(session, [this](const CatalogEvent& event) { catalog_event(event); }),
      figures(session) {}

void RemoteSession::Inside::catalog_event(const CatalogEvent& event) {
    const bool sized = event.kind == CatalogEventKind::resized ||
                       event.kind == CatalogEventKind::added ||
                       event.kind == CatalogEventKind::ready;
    for (std::size_t i = 0; sized && !event.entry.waiting && i < volumes.size(); ++i) {
        if (volumes[i]->options.name == event.entry.name) {
            volumes[i]->resized(event.entry.size_bytes);
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
}

void RemoteSession::Inside::on_link_down(std::error_code reason) {
    ready = false;
    handler.on_session_link_down(reason);
    for (std::size_t i = 0; i < volumes.size(); ++i) volumes[i]->link_lost(reason);
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
                                std::optional<rtrs::Duration> fail_fast_time) {
    inside_->session.set_waiting(hold_time, fail_fast_time);
    for (RemoteVolume::Inside* const volume : inside_->volumes) volume->arm_hold();
}

RemoteCatalog& RemoteSession::catalog() noexcept { return inside_->catalog; }
RemoteFigures& RemoteSession::figures() noexcept { return inside_->figures; }
const std::string& RemoteSession::name() const noexcept { return inside_->session.options().name; }

}  // namespace rnbd
