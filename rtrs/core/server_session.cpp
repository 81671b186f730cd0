// ServerSession: its paths, its name, and its requests. See server.h.

#include <algorithm>

#include "rtrs/base/assert.h"
#include "rtrs/base/host.h"
#include "rtrs/base/planted.h"
#include "rtrs/base/rare.h"
#include "rtrs/core/server_inside.h"
#include "rtrs/limits.h"

namespace rtrs {
namespace {

// Whether the client has given up that attempt for this one.
bool is_later(const ConnectRequestMessage& message, const ServerPathIdentity& known) noexcept {
    return static_cast<std::int16_t>(message.reconnect_count - known.reconnect_count) > 0;
}

OpSlot& slot_of(Attempt& attempt) noexcept { return static_cast<OpSlot&>(attempt); }

}  // namespace

// --- The session's paths. Order of checks and errno values: "Connection request" in
// docs/reference/wire-rtrs.md.

std::expected<ServerPath*, int> ServerSession::Inside::find_or_make_path(
    const Server::Inside::Portal& portal, const ConnectRequestMessage& message,
    const ConnectRequest& request) {
    ServerPath* const known = newest(message.path_uuid);
    if (known != nullptr && !may_be_succeeded(*known, message)) {
        if (joins(*known, portal, message)) return known;
        return std::unexpected(ECONNRESET);
    }
    const auto made = make_path(portal, message, request);
    if (made && known != nullptr) RTRS_RARE(succeeded);
    return made;
}

// There may be several: a path that has ended may still wait for operations while its client has
// made it anew.
bool ServerSession::Inside::succeeds(const ConnectRequestMessage& message) const noexcept {
    const ServerPath* const path = newest(message.path_uuid);
    return path != nullptr && is_later(message, path->identity());
}

ServerPath* ServerSession::Inside::newest(const Uuid& path_uuid) const noexcept {
    ServerPath* found = nullptr;
    for (const auto& path : paths) {
        if (path->identity().path_uuid == path_uuid) found = path.get();
    }
    return found;
}

// Without this, one storage that hangs would keep the session's other volumes away too. The old
// path's operations change nothing that belongs to the new path: it has chunks of its own, and
// admission lets a request's second attempt wait for the first. A client without sequence numbers
// takes the acceptance as the end of those operations, so its path may not be succeeded.
bool ServerSession::Inside::may_be_succeeded(const ServerPath& path,
                                             const ConnectRequestMessage& message) const noexcept {
    const ServerPathIdentity& old = path.identity();
    const auto of_it = [&](const auto& one) { return one->identity().path_uuid == old.path_uuid; };
    return path.sequenced() && path.only_operations_left() &&
           static_cast<std::int16_t>(message.reconnect_count - old.reconnect_count) > 0 &&
           std::ranges::count_if(paths, of_it) < limits::path_lives_max;
}

// Whether the connection is one more of that path; if not, it is refused.
bool ServerSession::Inside::joins(ServerPath& path, const Server::Inside::Portal& portal,
                                  const ConnectRequestMessage& message) {
    const ServerPathIdentity& known = path.identity();
    // The path's memory belongs to one fabric; another fabric cannot use it.
    if (path.state() == ServerPath::State::connecting && &path.fabric() == &portal.fabric &&
        known.reconnect_count == message.reconnect_count &&
        known.connection_count == message.connection_count) {
        // A duplicate is refused with a reason, without harm to the existing connection.
        return !path.has_connection(message.connection_id);
    }
    // The client has given that attempt up, whatever this side thinks of it. Connects are refused
    // until the old path is drained and may be succeeded, or has gone; the client tries again. A
    // late dial of an earlier attempt changes nothing.
    if (is_later(message, known)) {
        RTRS_RARE(superseded);
        path.close("superseded by a later connect of the same path");
    }
    return false;
}

std::expected<ServerPath*, int> ServerSession::Inside::make_path(
    const Server::Inside::Portal& portal, const ConnectRequestMessage& message,
    const ConnectRequest& request) {
    const std::string local = request.local_address();
    const std::string remote = request.remote_address();
    if (paths.size() >= limits::paths_max) return std::unexpected(ECONNRESET);
    for (const auto& path : paths) {
        // The client's port does not count, because two paths over the same addresses would fail
        // together.
        if (&path->fabric() == &portal.fabric && path->identity().local_address == local &&
            host_of(path->identity().remote_address) == host_of(remote) &&
            path->state() == ServerPath::State::connected) {
            return std::unexpected(EEXIST);
        }
    }
    const std::uint32_t features = message.features & server.features_offered();
    // Admission compares attempts of all paths, so all of them must have sequence numbers, or none.
    if (std::ranges::any_of(
            paths, [&](const auto& path) { return path->identity().features != features; })) {
        return std::unexpected(EINVAL);
    }
    auto domain = portal.fabric.create_domain();
    if (!domain) return std::unexpected(to_errno(domain.error()));
    auto path = std::make_unique<ServerPath>(
        server.environment, server.options,
        ServerPathIdentity{.path_uuid = message.path_uuid,
                           .connection_count = message.connection_count,
                           .reconnect_count = message.reconnect_count,
                           .features = features,
                           .portal = portal.options.id,
                           .key_renewal = server.key_renewal(portal.options),
                           // This spreads sessions, paths and connections over the threads.
                           .worker = number + static_cast<std::uint32_t>(paths.size()),
                           .local_address = local,
                           .remote_address = remote},
        *self, ServerMemory{.fabric = &portal.fabric, .domain = std::move(*domain)}, *this);
    if (const auto error = path->prepare()) {
        path->abandon();
        return std::unexpected(to_errno(error));
    }
    if (has(features, Feature::messages) && !message_core) {
        message_core.emplace(server.environment.clock, *server.options.messages,
                             server.environment.random.next() | 1, *this);
    }
    if (disputed()) path->hold_requests();
    return paths.emplace_back(std::move(path)).get();
}

// --- A session's life.

std::uint32_t ServerSession::Inside::connections() const noexcept {
    std::uint32_t all = 0;
    for (const auto& path : paths) all += path->connections_accepted();
    return all;
}

void ServerSession::Inside::count_connections() noexcept {
    std::uint32_t to_come = 0;
    for (const auto& path : paths) to_come += path->connections_to_come();
    connections_max = std::max(connections_max, connections());
    server.places_kept -= places;
    places = up ? 0 : std::min(to_come, places_kept_max);
    server.places_kept += places;
}

std::optional<NameRefusal> ServerSession::Inside::accept_name(ServerPath& path,
                                                              const InfoRequestMessage& its_who) {
    const std::string& name = its_who.session_name;
    const Arrival arrival{.session = name,
                          .host = host_of(path.identity().remote_address),
                          .portal = path.identity().portal};
    const auto turned_away = [&](std::error_code error) {
        return NameRefusal{"session " + name + " is turned away: " + error.message(),
                           TraceLevel::debug, Error::rejected};
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
    count_connections();
    return std::nullopt;
}

// A client that died and came back need not wait until its former session is found dead. It is
// admitted when nothing of that session can happen any more: the name is free once the old session
// has gone.
NameRefusal ServerSession::Inside::take_over(ServerSession& other, const ServerPath& path,
                                             const InfoRequestMessage& its_who) {
    const InfoRequestMessage& old = other.inside_->who;
    const bool same = its_who.identity != 0 && old.identity != 0
                          ? its_who.identity == old.identity
                          : host_of(path.identity().remote_address) == other.peer_host_;
    if (!same) {
        return {"the session name " + other.name_ + " is in use by another client at " +
                    other.peer_host_,
                TraceLevel::info, Error::name_in_use};
    }
    // Life 1 only asks; a session without lives, such as a kernel's, is at work under its name.
    const std::uint64_t lives_before = old.life == 0 ? 2 : old.life;
    if (its_who.life != 0 && its_who.life < lives_before) {
        return {"the session name " + other.name_ + " is in use by a newer life of this client"};
    }
    RTRS_RARE(took_over);
    // The end may take long, and each further attempt comes here.
    const bool known = server.retired.contains(other.id());
    server.retire(other);
    other.close("taken over by a newer session of the same client");
    return {"takes the session name " + other.name_ + " over: waiting for the old session's end",
            known ? TraceLevel::debug : TraceLevel::info, Error::former_session};
}

// The path's client will come again, and then find the portal without windows.
void ServerSession::Inside::windows_not_bound(ServerPath& path) {
    using Invalidate = PortalOptions::Invalidate;
    for (const auto& portal : server.portals) {
        if (portal->options.id != path.identity().portal) continue;
        if (portal->options.invalidate != Invalidate::if_possible) return;
        portal->options.invalidate = Invalidate::never;
        server.environment.tracer.trace(
            TraceLevel::warning, "rtrs.server", portal->listener->address(),
            "the device cannot bind memory windows: always_invalidate is off there, and a client "
            "can write into its requests' memory at any time");
    }
}

// --- Requests: admission decides, the handler serves.

// Does what request() does, for attempts that admission has not seen yet: they might run after this
// one.
void ServerSession::Inside::arrived_unnumbered(ServerPath& path, std::uint32_t permit) {
    for (const auto& other : paths) {
        if (other.get() != &path && other->revokes(permit)) dispute(path, *other);
    }
}

void ServerSession::Inside::request(ServerPath& path, OpSlot& slot) {
    const std::uint32_t permit = path.permit_of(slot);
    const Admission::Decision decision = admission.arrive(permit, slot);
    if (decision.verdict != Admission::Verdict::wait) return decide(slot, decision);
    path.make_wait(slot);
    Attempt* running = admission.running(permit);
    if (slot.sequence == 0 && running != nullptr) dispute(path, *slot_of(*running).path);
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
    // Nothing has to be done: the client only wants to know that older attempts of this permit are
    // settled.
    const bool fence = slot.sequence != 0 && slot.request.kind == RequestKind::write &&
                       slot.request.user_bytes == 0 && slot.request.data_bytes == 0;
    if (fence) return slot.op.respond({});
    server.handler.on_request(slot.op);
}

void ServerSession::Inside::ended(ServerPath& path, OpSlot& slot, int error) {
    const std::uint32_t permit = path.permit_of(slot);
    admission.ended(permit, slot, error);
    if (!disputed()) release(permit);
}

void ServerSession::Inside::release(std::uint32_t permit) {
    while (const auto released = admission.next_released(permit)) {
        OpSlot& next = slot_of(*released->attempt);
        next.path->run(next);
        decide(next, released->decision);
    }
}

void ServerSession::Inside::path_closed(ServerPath& path) {
    if (&path == newer_path || &path == older_path) left_dispute(path);
    std::erase_if(paths, [&](const auto& one) { return one.get() == &path; });
    count_connections();
    if (!paths.empty()) return;
    if (message_core) message_core->close();
    if (up) server.handler.on_session_down(*self);
    server.forget(*self);  // destroys *this
}

// --- The public face.

void ServerOp::respond(std::error_code error, std::uint32_t produced_bytes) {
    OpSlot& slot = *static_cast<OpSlot*>(slot_);
    RTRS_ASSERT(produced_bytes <= data_.size());
    slot.path->end(slot, error, produced_bytes);
}

bool ServerOp::use_answer_buffer() {
    OpSlot& slot = *static_cast<OpSlot*>(slot_);
    return slot.path->use_answer_buffer(slot);
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

bool ServerSession::connected() const noexcept {
    return std::ranges::any_of(inside_->paths, [](const auto& path) {
        return path->state() == ServerPath::State::connected;
    });
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
        const std::uint32_t features = path->identity().features;  // as those of the others
        status.messages = has(features, Feature::messages);
        status.connection_heartbeats = has(features, Feature::connection_heartbeats);
        status.in_flight += path->running();
        status.paths.push_back(path->status());
    }
    return status;
}

}  // namespace rtrs
