// Server and ServerSession: who may connect, which session a path belongs to, and their ends.
// See server.h.

#include "rtrs/server.h"

#include <algorithm>
#include <deque>
#include <map>

#include "rtrs/base/assert.h"
#include "rtrs/base/host.h"
#include "rtrs/core/admission.h"
#include "rtrs/core/message_service.h"
#include "rtrs/core/server_path.h"
#include "rtrs/limits.h"
#include "rtrs/wire/connect.h"

namespace rtrs {
namespace {

// Sessions that were taken over and must not come back; older ones are forgotten.
constexpr std::size_t retired_max = 1024;

OpSlot& slot_of(Attempt& attempt) noexcept { return static_cast<OpSlot&>(attempt); }

}  // namespace

struct Server::Inside {
    struct Door final : ListenerHandler {
        Door(Inside& its_server, Fabric& its_fabric, const DoorOptions& its_options)
            : server(its_server), fabric(its_fabric), options(its_options) {}
        void on_connect_request(std::unique_ptr<ConnectRequest> request) override {
            server.connect_request(*this, std::move(request));
        }
        Inside& server;
        Fabric& fabric;
        DoorOptions options;
        std::unique_ptr<Listener> listener;
    };

    Inside(SessionEnvironment its_environment, ServerOptions its_options,
           ServerHandler& its_handler)
        : environment(its_environment),
          options(its_options),
          handler(its_handler),
          closed_timer(environment.clock, this,
                       [](void* self) { static_cast<Inside*>(self)->handler.on_closed(); }) {}

    void connect_request(const Door& door, std::unique_ptr<ConnectRequest> request);
    int admit(const Door& door, std::unique_ptr<ConnectRequest>& request);
    bool may_come_in(const Door& door, const ConnectRequestMessage& message,
                     const ConnectRequest& request) const;
    int admit_messages(const Door& door, const ConnectRequestMessage& message,
                       ConnectRequest& request);
    std::expected<ServerSession*, int> find_or_make_session(const ConnectRequestMessage& message,
                                                            const Door& door,
                                                            const std::string& remote);
    // Of the sessions that have not said who they are, the oldest. False: there is none.
    bool close_half_open();
    KeyRenewal key_renewal(const DoorOptions& door) const noexcept {
        return options.always_invalidate && door.invalidate == DoorOptions::Invalidate::as_server
                   ? KeyRenewal::every_answer
                   : KeyRenewal::no;
    }
    std::uint32_t features_offered() const noexcept {
        std::uint32_t features = 0;
        if (options.protection == Protection::exactly_once) {
            features |= features_of(Feature::failover);
        }
        if (options.messages) features |= features_of(Feature::messages);
        return features;
    }
    void forget(ServerSession& session);
    void retire(const ServerSession& session);
    void close();

    SessionEnvironment environment;
    ServerOptions options;
    ServerHandler& handler;
    std::vector<std::unique_ptr<Door>> doors;
    std::map<Uuid, std::unique_ptr<ServerSession>> sessions;
    std::deque<Uuid> retired;
    std::uint32_t sessions_ever = 0;
    Timer closed_timer;
    bool closing = false;
};

struct ServerSession::Inside final : ServerPathOwner, MessageCoreOwner {
    Inside(Server::Inside& its_server, Instant now)
        : server(its_server),
          number(server.sessions_ever++),
          admission(server.options.queue_depth),
          since(now) {}

    std::optional<NameRefusal> accept_name(ServerPath& path,
                                           const InfoRequestMessage& its_who) override;
    NameRefusal take_over(ServerSession& other, const ServerPath& path,
                          const InfoRequestMessage& its_who);
    void request(ServerPath& path, OpSlot& slot) override;
    void no_longer_waits(ServerPath& path, OpSlot& slot) override {
        admission.drop(path.permit_of(slot), slot);
    }
    void chunk_gone(void* chunk_context) override { server.handler.on_chunk_gone(chunk_context); }
    MessageCore& messages() noexcept override { return *message_core; }
    void messages_reset() override {}
    void decide(OpSlot& slot, const Admission::Decision& decision);
    void serve(OpSlot& slot);
    void ended(ServerPath& path, OpSlot& slot, int error) override;
    void path_closed(ServerPath& path) override;

    // Positive errno, or the path for the connection.
    std::expected<ServerPath*, int> find_or_make_path(const Server::Inside::Door& door,
                                                      const ConnectRequestMessage& message,
                                                      const ConnectRequest& request);

    Server::Inside& server;
    const std::uint32_t number;  // of all that ever were
    ServerSession* self = nullptr;
    Admission admission;
    InfoRequestMessage who;                   // as its first path said
    std::optional<MessageCore> message_core;  // longer than the paths
    std::vector<std::unique_ptr<ServerPath>> paths;
    Instant since;
    bool up = false;
};

// --- Who may come in. Order of checks and errno values: section "connection requests" of
// docs/reference/wire-rtrs.md.

void Server::Inside::connect_request(const Door& door, std::unique_ptr<ConnectRequest> request) {
    const int error = admit(door, request);
    if (error == 0 || !request) return;
    std::byte private_data[ConnectResponseMessage::wire_bytes];
    ConnectResponseMessage::reject(error).emit(private_data);
    request->reject(private_data);
}

// A kernel's client says nothing of extensions.
bool Server::Inside::may_come_in(const Door& door, const ConnectRequestMessage& message,
                                 const ConnectRequest& request) const {
    if (door.options.clients == DoorOptions::Clients::any) return true;
    if ((message.features & features_known) != 0) return true;
    environment.tracer.trace(TraceLevel::warning, "rtrs.server", request.remote_address(),
                             "refused: a client without extensions, such as a kernel's, and " +
                                 request.local_address() + " does not listen for those");
    return false;
}

int Server::Inside::admit(const Door& door, std::unique_ptr<ConnectRequest>& request) {
    if (closing) return ECONNRESET;
    const auto message = ConnectRequestMessage::parse(request->private_data());
    if (!message) {
        environment.tracer.trace(TraceLevel::warning, "rtrs.server", request->remote_address(),
                                 std::string("bad connect request: ") + text(message.error()));
        return ECONNRESET;
    }
    if (std::ranges::find(retired, message->session_uuid) != retired.end()) {
        RTRS_RARE(retired_refused);
        return ESTALE;
    }
    if (!may_come_in(door, *message, *request)) return EPROTONOSUPPORT;
    if (message->purpose == ConnectionPurpose::messages)
        return admit_messages(door, *message, *request);
    const auto session = find_or_make_session(*message, door, request->remote_address());
    if (!session) return session.error();
    ServerSession::Inside& inside = *(*session)->inside_;
    const auto path = inside.find_or_make_path(door, *message, *request);
    if (!path) {
        if (inside.paths.empty()) forget(**session);
        return path.error();
    }
    const auto error = (*path)->accept(std::move(request), *message);
    if (error) (*path)->close("cannot accept a connection: " + error.message());
    return 0;
}

int Server::Inside::admit_messages(const Door& door, const ConnectRequestMessage& message,
                                   ConnectRequest& request) {
    const auto session = sessions.find(message.session_uuid);
    if (session == sessions.end()) return ECONNRESET;
    for (const auto& path : session->second->inside_->paths) {
        if (path->identity().path_uuid != message.path_uuid) continue;
        if (&path->fabric() != &door.fabric) break;
        return to_errno(path->accept_messages(request, message));
    }
    return ECONNRESET;
}

std::expected<ServerSession*, int> Server::Inside::find_or_make_session(
    const ConnectRequestMessage& message, const Door& door, const std::string& remote) {
    if (const auto known = sessions.find(message.session_uuid); known != sessions.end()) {
        return known->second.get();
    }
    if (message.first_connection == FirstConnection::no) return std::unexpected(ENXIO);
    // A flood of them is bounded, too: those that were closed are there until they have drained.
    if (sessions.size() >= options.sessions_max &&
        (sessions.size() >= 2 * std::size_t{options.sessions_max} || !close_half_open())) {
        environment.tracer.trace(TraceLevel::warning, "rtrs.server", remote,
                                 "refused: as many sessions as allowed are there already");
        return std::unexpected(ENOMEM);
    }
    auto inside = std::make_unique<ServerSession::Inside>(*this, environment.clock.now());
    if (!inside->admission) return std::unexpected(ENOMEM);
    std::unique_ptr<ServerSession> session(new ServerSession(std::move(inside)));
    session->id_ = message.session_uuid;
    session->peer_host_ = host_of(remote);
    session->door_ = door.options.id;
    return sessions.emplace(message.session_uuid, std::move(session)).first->second.get();
}

bool Server::Inside::close_half_open() {
    ServerPath* oldest = nullptr;
    for (const auto& [id, session] : sessions) {
        if (session->inside_->up) continue;
        for (const auto& path : session->inside_->paths) {
            if (path->state() == ServerPath::State::connecting &&
                (oldest == nullptr || path->since() < oldest->since())) {
                oldest = path.get();
            }
        }
    }
    if (oldest == nullptr) return false;
    oldest->close("did not say who it is, and others want to come in");
    return true;
}

std::expected<ServerPath*, int> ServerSession::Inside::find_or_make_path(
    const Server::Inside::Door& door, const ConnectRequestMessage& message,
    const ConnectRequest& request) {
    const std::string local = request.local_address();
    const std::string remote = request.remote_address();
    for (const auto& path : paths) {
        const ServerPathIdentity& known = path->identity();
        if (known.path_uuid != message.path_uuid) continue;
        // Its memory is the one fabric's: another one can do nothing with it.
        if (path->state() == ServerPath::State::connecting && &path->fabric() == &door.fabric &&
            known.reconnect_count == message.reconnect_count &&
            known.connection_count == message.connection_count) {
            // Refused with a reason, and no harm to what is there.
            if (path->has_connection(message.connection_id)) return std::unexpected(ECONNRESET);
            return path.get();
        }
        // The client has given that attempt up, whatever this side thinks of it. Until the old
        // path is drained and its operations have ended the answer is no; the client tries again.
        // A dial of an earlier attempt that arrives late changes nothing.
        if (static_cast<std::int16_t>(message.reconnect_count - known.reconnect_count) > 0) {
            RTRS_RARE(superseded);
            path->close("superseded by a later connect of the same path");
        }
        return std::unexpected(ECONNRESET);
    }
    if (paths.size() >= limits::paths_max) return std::unexpected(ECONNRESET);
    for (const auto& path : paths) {
        // The client's port does not count: two paths over the same addresses would fail together.
        if (&path->fabric() == &door.fabric && path->identity().local_address == local &&
            host_of(path->identity().remote_address) == host_of(remote) &&
            path->state() == ServerPath::State::connected) {
            return std::unexpected(EEXIST);
        }
    }
    const std::uint32_t features = message.features & server.features_offered();
    // Admission compares attempts of all paths: they all have sequences, or none.
    if (std::ranges::any_of(
            paths, [&](const auto& path) { return path->identity().features != features; })) {
        return std::unexpected(EINVAL);
    }
    auto domain = door.fabric.create_domain();
    if (!domain) return std::unexpected(to_errno(domain.error()));
    auto path = std::make_unique<ServerPath>(
        server.environment, server.options,
        ServerPathIdentity{.path_uuid = message.path_uuid,
                           .connection_count = message.connection_count,
                           .reconnect_count = message.reconnect_count,
                           .features = features,
                           .door = door.options.id,
                           .key_renewal = server.key_renewal(door.options),
                           // So that sessions, paths and connections are spread.
                           .worker = number + static_cast<std::uint32_t>(paths.size()),
                           .local_address = local,
                           .remote_address = remote},
        *self, ServerMemory{.fabric = &door.fabric, .domain = std::move(*domain)}, *this);
    if (const auto error = path->prepare()) {
        path->abandon();
        return std::unexpected(to_errno(error));
    }
    if (has(features, Feature::messages) && !message_core) {
        message_core.emplace(server.environment.clock, *server.options.messages,
                             server.environment.random.next() | 1, *this);
    }
    return paths.emplace_back(std::move(path)).get();
}

// --- A session's life.

std::optional<NameRefusal> ServerSession::Inside::accept_name(ServerPath& path,
                                                              const InfoRequestMessage& its_who) {
    const std::string& name = its_who.session_name;
    const Arrival arrival{.session = name,
                          .host = host_of(path.identity().remote_address),
                          .door = path.identity().door};
    const auto turned_away = [&](std::error_code error) {
        return NameRefusal{"session " + name + " is turned away: " + error.message(),
                           TraceLevel::debug};
    };
    if (const auto error = server.handler.on_path(arrival)) return turned_away(error);
    if (up) {
        if (name == self->name_) return std::nullopt;
        return NameRefusal{"the session's name is " + self->name_ + ", not " + name};
    }
    for (const auto& [id, other] : server.sessions) {
        if (other.get() != self && other->name_ == name) {
            if (planted(PlantedBug::takeover_off)) continue;
            return take_over(*other, path, its_who);
        }
    }
    self->name_ = name;
    if (const auto error = server.handler.on_session_up(*self)) {
        self->name_.clear();
        return turned_away(error);
    }
    who = its_who;
    up = true;
    return std::nullopt;
}

// A client that died and came back need not wait until its former life is found dead. It comes in
// when nothing of that can happen any more: the name is free once the old session has gone.
NameRefusal ServerSession::Inside::take_over(ServerSession& other, const ServerPath& path,
                                             const InfoRequestMessage& its_who) {
    const InfoRequestMessage& old = other.inside_->who;
    const bool same = its_who.identity != 0 && old.identity != 0
                          ? its_who.identity == old.identity
                          : host_of(path.identity().remote_address) == other.peer_host_;
    if (!same) {
        return {"the session name " + other.name_ + " is in use by another client at " +
                other.peer_host_};
    }
    if (its_who.life != 0 && its_who.life < old.life) {
        return {"the session name " + other.name_ + " is in use by a newer life of this client"};
    }
    RTRS_RARE(took_over);
    server.retire(other);
    other.close("taken over by a newer session of the same client");
    return {"takes the session name " + other.name_ + " over: waiting for the old session's end"};
}

// --- Requests: admission decides, the handler serves.

void ServerSession::Inside::request(ServerPath& path, OpSlot& slot) {
    const std::uint32_t permit = path.permit_of(slot);
    const Admission::Decision decision = admission.arrive(permit, slot);
    if (decision.verdict != Admission::Verdict::wait) return decide(slot, decision);
    path.make_wait(slot);
    // A peer without sequences does this only when it has given the other path up.
    Attempt* running = admission.running(permit);
    if (slot.sequence == 0 && running != nullptr) {
        slot_of(*running).path->close("its permit came back on another path");
    }
}

void ServerSession::Inside::decide(OpSlot& slot, const Admission::Decision& decision) {
    switch (decision.verdict) {
        case Admission::Verdict::run:
            return serve(slot);
        case Admission::Verdict::wait:
            return;
        case Admission::Verdict::answer:
            return slot.path->respond(slot, from_errno(decision.result), 0);
        case Admission::Verdict::stale:
            return slot.path->respond(slot, from_errno(ESTALE), 0);
    }
}

void ServerSession::Inside::serve(OpSlot& slot) {
    // Nothing to do: the client only wants to know that older attempts of this permit are settled.
    const bool fence = slot.sequence != 0 && slot.request.kind == RequestKind::write &&
                       slot.request.user_bytes == 0 && slot.request.data_bytes == 0;
    if (fence) return slot.op.respond({});
    server.handler.on_request(slot.op);
}

void ServerSession::Inside::ended(ServerPath& path, OpSlot& slot, int error) {
    const std::uint32_t permit = path.permit_of(slot);
    admission.ended(permit, slot, error);
    while (const auto released = admission.next_released(permit)) {
        OpSlot& next = slot_of(*released->attempt);
        next.path->run(next);
        decide(next, released->decision);
    }
}

void ServerSession::Inside::path_closed(ServerPath& path) {
    std::erase_if(paths, [&](const auto& one) { return one.get() == &path; });
    if (!paths.empty()) return;
    if (message_core) message_core->close();
    if (up) server.handler.on_session_down(*self);
    server.forget(*self);  // destroys *this
}

void Server::Inside::forget(ServerSession& session) {
    sessions.erase(session.id());
    if (closing && sessions.empty()) closed_timer.arm(environment.clock.now());
}

void Server::Inside::retire(const ServerSession& session) {
    if (std::ranges::find(retired, session.id()) != retired.end()) return;
    if (retired.size() == retired_max) retired.pop_front();
    retired.push_back(session.id());
}

void Server::Inside::close() {
    if (closing) return;
    closing = true;
    doors.clear();
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

void ServerOp::respond(std::error_code error, std::uint32_t produced_bytes) {
    OpSlot& slot = *static_cast<OpSlot*>(slot_);
    RTRS_ASSERT(produced_bytes <= data_.size());
    slot.path->end(slot, error, produced_bytes);
}

void*& ServerOp::chunk_context() const noexcept {
    return static_cast<OpSlot*>(slot_)->chunk_context;
}

ServerSession::ServerSession(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {
    inside_->self = this;
}
ServerSession::~ServerSession() = default;

std::uint32_t ServerSession::queue_depth() const noexcept {
    return inside_->server.options.queue_depth;
}
std::uint32_t ServerSession::max_io_bytes() const noexcept {
    return inside_->server.options.chunk_bytes - inside_->server.options.header_bytes;
}
std::uint32_t ServerSession::chunk_bytes() const noexcept {
    return inside_->server.options.chunk_bytes;
}
MessageService* ServerSession::messages() noexcept {
    return inside_->message_core ? &*inside_->message_core : nullptr;
}
Protection ServerSession::protection() const noexcept {
    const auto& paths = inside_->paths;
    return !paths.empty() && paths.front()->sequenced() ? Protection::exactly_once
                                                        : Protection::fenced;
}

void ServerSession::close(std::string_view reason) {
    for (const auto& path : inside_->paths) path->close(reason);
}

bool ServerSession::close_path(std::string_view id, std::string_view reason) {
    for (const auto& path : inside_->paths) {
        if (path->id() != id) continue;
        path->close(reason);
        return true;
    }
    return false;
}

ServerSessionStatus ServerSession::status() const {
    ServerSessionStatus status{.name = name_,
                               .id = id_.text(),
                               .peer = peer_host_,
                               .since = inside_->since,
                               .queue_depth = queue_depth(),
                               .max_io_bytes = max_io_bytes(),
                               .in_flight = 0,
                               .protection = protection(),
                               .stale = inside_->admission.statistics().stale,
                               .answered = inside_->admission.statistics().answered,
                               .waited = inside_->admission.statistics().waited,
                               .paths = {}};
    for (const auto& path : inside_->paths) {
        status.in_flight += path->running();
        status.paths.push_back(path->status());
    }
    return status;
}

Server::Server(SessionEnvironment environment, ServerOptions options, ServerHandler& handler)
    : inside_(std::make_unique<Inside>(environment, options, handler)) {}

Server::~Server() { RTRS_ASSERT(inside_->sessions.empty()); }

std::expected<std::string, std::error_code> Server::listen(Fabric& fabric,
                                                           const std::string& address,
                                                           const DoorOptions& options_of_door) {
    const ServerOptions& options = inside_->options;
    if (options.messages && MessageCore::check(*options.messages)) {
        return std::unexpected(from_errno(EINVAL));
    }
    if (!limits::geometry_possible(options.queue_depth, options.chunk_bytes) ||
        options.header_bytes < limits::header_bytes_default ||
        options.header_bytes >= options.chunk_bytes) {
        return std::unexpected(from_errno(EINVAL));
    }
    auto door = std::make_unique<Inside::Door>(*inside_, fabric, options_of_door);
    auto listener = fabric.listen(address, *door);
    if (!listener) return std::unexpected(listener.error());
    door->listener = std::move(*listener);
    inside_->doors.push_back(std::move(door));
    return inside_->doors.back()->listener->address();
}

void Server::stop_listening(std::uint32_t door) noexcept {
    // Sessions know their door: it stays.
    for (const auto& one : inside_->doors) {
        if (one->options.id == door) one->listener.reset();
    }
}

void Server::close() { inside_->close(); }

std::vector<ServerSession*> Server::sessions() const {
    std::vector<ServerSession*> sessions;
    for (const auto& [id, session] : inside_->sessions) sessions.push_back(session.get());
    return sessions;
}

}  // namespace rtrs
