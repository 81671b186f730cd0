// Server: who may connect, which session a connection belongs to, and the end. See server.h.

#include "rtrs/server.h"

#include <algorithm>

#include "rtrs/base/assert.h"
#include "rtrs/base/host.h"
#include "rtrs/base/rare.h"
#include "rtrs/core/server_inside.h"
#include "rtrs/limits.h"

namespace rtrs {
namespace {

// So long a session may take to say who it is although its places are wanted by others.
constexpr Duration half_open_timeout = std::chrono::seconds(1);

bool possible(const ServerOptions& options) noexcept {
    return limits::geometry_possible(options.queue_depth, options.chunk_bytes) &&
           options.header_bytes >= limits::header_bytes_default &&
           options.header_bytes < options.chunk_bytes &&
           options.heartbeat_interval > Duration::zero() &&
           options.heartbeat_timeout > options.heartbeat_interval &&
           options.half_open_timeout > Duration::zero() && options.sessions_max > 0 &&
           (!options.messages || !MessageCore::check(*options.messages));
}

}  // namespace

// --- Who may come in. Order of checks and errno values: "Connection request" in
// docs/reference/wire-rtrs.md.

void Server::Inside::connect_request(const Portal& portal,
                                     std::unique_ptr<ConnectRequest> request) {
    const int error = admit(portal, *request);
    if (error == 0) return;
    std::byte private_data[ConnectResponseMessage::wire_bytes];
    ConnectResponseMessage::reject(error).emit(private_data);
    request->reject(private_data);
}

// A kernel's client announces no extensions.
bool Server::Inside::may_come_in(const Portal& portal, const ConnectRequestMessage& message,
                                 const ConnectRequest& request) {
    if (portal.options.clients == PortalOptions::Clients::any) return true;
    if ((message.features & features_known) != 0) return true;
    tell_refusal(without_extensions, request.remote_address(),
                 "refused: a client without extensions, such as a kernel's, and " +
                     request.local_address() + " does not listen for those");
    return false;
}

// Whoever is refused comes again and again, so this is logged only seldom.
void Server::Inside::tell_refusal(LogRateLimit& of, const std::string& remote,
                                  const std::string& why) {
    if (const auto times = of.happened(environment.clock.now())) {
        environment.tracer.trace(TraceLevel::warning, "rtrs.server", remote,
                                 why + how_often(*times));
    }
}

// New sessions must not take the descriptors that existing sessions need, and neither may take
// those that an operator needs. A place for each connection is kept from a session's first one on.
// Otherwise sessions that come all at once would get all first connections, and none a second.
bool Server::Inside::has_room_for(const ConnectRequestMessage& message,
                                  const ConnectRequest& request) {
    const DescriptorsLeft left = request.descriptors_left();
    if (left.to_new > (sessions.size() + 1) * places_kept_max) return true;
    const auto found = sessions.find(message.session_uuid);
    const auto* session = found == sessions.end() ? nullptr : found->second->inside_.get();
    if (message.purpose == ConnectionPurpose::messages) {
        if (left.to_new > 0) return true;
    } else if (session == nullptr ? lost.contains(message.session_uuid)
                                  : session->has_place() || session->succeeds(message)) {
        if (left.to_known > 0) return true;
    } else {
        const std::uint64_t kept = places_kept - (session != nullptr ? session->places : 0);
        const bool goes_on = session != nullptr && session->newest(message.path_uuid) != nullptr;
        const std::uint32_t wanted =
            goes_on ? 1 : std::min<std::uint32_t>(message.connection_count, places_kept_max);
        if (left.to_new >= kept + wanted) return true;
        // The next attempt finds more room. Who announces much and stays away keeps nobody out.
        if (session == nullptr) close_half_open(environment.clock.now() - half_open_timeout);
    }
    tell_refusal(
        without_descriptors, request.remote_address(),
        "refused, as others may be: this process has hardly any descriptors left (ulimit -n)");
    return false;
}

int Server::Inside::admit(const Portal& portal, ConnectRequest& request) {
    if (closing) return ECONNRESET;
    const auto message = ConnectRequestMessage::parse(request.private_data());
    if (!message) {
        tell_refusal(unparsed, request.remote_address(),
                     std::string("bad connect request: ") + text(message.error()));
        return ECONNRESET;
    }
    if (retired.contains(message->session_uuid)) {
        RTRS_RARE(retired_refused);
        return ESTALE;
    }
    if (!may_come_in(portal, *message, request)) return EPROTONOSUPPORT;
    if (!has_room_for(*message, request)) return EMFILE;
    if (message->purpose == ConnectionPurpose::messages)
        return admit_messages(portal, *message, request);
    const auto session = find_or_make_session(*message, portal, request.remote_address());
    if (!session) return session.error();
    ServerSession::Inside& inside = *(*session)->inside_;
    const auto path = inside.find_or_make_path(portal, *message, request);
    if (!path) {
        if (inside.paths.empty()) forget(**session);
        return path.error();
    }
    const auto error = (*path)->accept(request, *message);
    inside.count_connections();
    if (error) (*path)->close("cannot accept a connection: " + error.message());
    return to_errno(error);
}

int Server::Inside::admit_messages(const Portal& portal, const ConnectRequestMessage& message,
                                   ConnectRequest& request) {
    const auto session = sessions.find(message.session_uuid);
    if (session == sessions.end()) return ECONNRESET;
    ServerPath* const path = session->second->inside_->newest(message.path_uuid);
    if (path == nullptr || &path->fabric() != &portal.fabric) return ECONNRESET;
    return to_errno(path->accept_messages(request, message));
}

std::expected<ServerSession*, int> Server::Inside::find_or_make_session(
    const ConnectRequestMessage& message, const Portal& portal, const std::string& remote) {
    if (const auto known = sessions.find(message.session_uuid); known != sessions.end()) {
        return known->second.get();
    }
    if (message.first_connection == FirstConnection::no) return std::unexpected(ENXIO);
    // A flood of sessions is bounded too: closed ones remain until they have drained. Sessions that
    // return find a few more places, which others do not get.
    const std::size_t for_all = options.sessions_max;
    const std::size_t allowed =
        lost.contains(message.session_uuid) ? for_all + for_all / 8 + 1 : for_all;
    if (sessions.size() >= allowed &&
        (sessions.size() >= 2 * for_all || !close_half_open(environment.clock.now()))) {
        tell_refusal(too_many, remote, "refused: as many sessions as allowed are there already");
        return std::unexpected(EUSERS);
    }
    auto inside = std::make_unique<ServerSession::Inside>(*this, environment.clock.now());
    if (!inside->admission) return std::unexpected(ENOMEM);
    std::unique_ptr<ServerSession> session(new ServerSession(std::move(inside)));
    session->id_ = message.session_uuid;
    session->peer_host_ = host_of(remote);
    session->portal_ = portal.options.id;
    session->inside_->connections_max = lost.connections_of(message.session_uuid);
    return sessions.emplace(message.session_uuid, std::move(session)).first->second.get();
}

bool Server::Inside::close_half_open(Instant then) {
    ServerPath* oldest = nullptr;
    for (const auto& [id, session] : sessions) {
        if (session->inside_->up) continue;
        for (const auto& path : session->inside_->paths) {
            if (path->state() == ServerPath::State::connecting && path->last_accept() <= then &&
                (oldest == nullptr || path->since() < oldest->since())) {
                oldest = path.get();
            }
        }
    }
    if (oldest == nullptr) return false;
    oldest->close("did not say who it is, and others want to come in");
    return true;
}

// --- Sessions go, and the end.

void Server::Inside::forget(ServerSession& session) {
    if (session.inside_->up) lost.remember(session.id(), session.inside_->connections_max);
    sessions.erase(session.id());
    if (closing && sessions.empty()) closed_timer.arm(environment.clock.now());
}

void Server::Inside::retire(const ServerSession& session) { retired.remember(session.id()); }

void Server::Inside::close() {
    if (closing) return;
    closing = true;
    portals.clear();
    if (sessions.empty()) {
        closed_timer.arm(environment.clock.now());
        return;
    }
    for (const auto& [id, session] : sessions) {
        for (const auto& path : session->inside_->paths) {
            path->close_after_answers("the server is stopping");
        }
    }
}

// --- The public face.

Server::Server(SessionEnvironment environment, ServerOptions options, ServerHandler& handler)
    : inside_(std::make_unique<Inside>(environment, options, handler)) {}

Server::~Server() { RTRS_ASSERT(inside_->sessions.empty()); }

std::expected<std::string, std::error_code> Server::listen(Fabric& fabric,
                                                           const std::string& address,
                                                           const PortalOptions& options_of_portal) {
    if (!possible(inside_->options)) return std::unexpected(from_errno(EINVAL));
    auto portal = std::make_unique<Inside::Portal>(*inside_, fabric, options_of_portal);
    auto listener = fabric.listen(address, *portal);
    if (!listener) return std::unexpected(listener.error());
    portal->listener = std::move(*listener);
    inside_->portals.push_back(std::move(portal));
    return inside_->portals.back()->listener->address();
}

void Server::stop_listening(std::uint32_t portal) noexcept {
    std::erase_if(inside_->portals, [&](const auto& one) { return one->options.id == portal; });
}

void Server::close() { inside_->close(); }

std::vector<ServerSession*> Server::sessions() const {
    std::vector<ServerSession*> sessions;
    for (const auto& [id, session] : inside_->sessions) sessions.push_back(session.get());
    return sessions;
}

}  // namespace rtrs
