// What the files of Server and ServerSession share: server.cpp (who may connect, listeners, the
// end), server_session.cpp (a session's name, paths and requests) and server_session_dispute.cpp
// (which of two paths a client has given up).
#pragma once

#include <cstdint>
#include <expected>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rtrs/base/log_rate_limit.h"
#include "rtrs/base/member_call.h"
#include "rtrs/core/admission.h"
#include "rtrs/core/message_service.h"
#include "rtrs/core/remembered_sessions.h"
#include "rtrs/core/server_path.h"
#include "rtrs/server.h"
#include "rtrs/wire/connect.h"

namespace rtrs {

// A session that has not said who it is has places kept for so many of its connections at most,
// whatever it announces.
inline constexpr std::uint32_t places_kept_max = 16;

struct Server::Inside {
    struct Portal final : ListenerHandler {
        Portal(Inside& its_server, Fabric& its_fabric, const PortalOptions& its_options)
            : server(its_server), fabric(its_fabric), options(its_options) {}
        void on_connect_request(std::unique_ptr<ConnectRequest> request) override {
            server.connect_request(*this, std::move(request));
        }
        Inside& server;
        Fabric& fabric;
        PortalOptions options;
        std::unique_ptr<Listener> listener;
    };

    Inside(SessionEnvironment its_environment, ServerOptions its_options,
           ServerHandler& its_handler)
        : environment(its_environment),
          options(its_options),
          handler(its_handler),
          closed_timer(environment.clock, this,
                       [](void* self) { static_cast<Inside*>(self)->handler.on_closed(); }) {}

    void connect_request(const Portal& portal, std::unique_ptr<ConnectRequest> request);
    int admit(const Portal& portal, ConnectRequest& request);
    bool may_come_in(const Portal& portal, const ConnectRequestMessage& message,
                     const ConnectRequest& request);
    bool has_room_for(const ConnectRequestMessage& message, const ConnectRequest& request);
    int admit_messages(const Portal& portal, const ConnectRequestMessage& message,
                       ConnectRequest& request);
    std::expected<ServerSession*, int> find_or_make_session(const ConnectRequestMessage& message,
                                                            const Portal& portal,
                                                            const std::string& remote);
    // Closes the oldest path of the sessions that have not said who they are, of those without a
    // new connection since then. False: there is none.
    bool close_half_open(Instant then);
    KeyRenewal key_renewal(const PortalOptions& portal) const noexcept {
        return options.always_invalidate && portal.invalidate != PortalOptions::Invalidate::never
                   ? KeyRenewal::every_answer
                   : KeyRenewal::no;
    }
    std::uint32_t features_offered() const noexcept {
        std::uint32_t features = 0;
        if (options.protection == Protection::exactly_once) {
            features |= features_of(Feature::failover, Feature::connection_heartbeats);
        }
        if (options.messages) features |= features_of(Feature::messages);
        return features;
    }
    void tell_refusal(LogRateLimit& of, const std::string& remote, const std::string& why);
    void forget(ServerSession& session);
    void retire(const ServerSession& session);
    void close();

    SessionEnvironment environment;
    ServerOptions options;
    ServerHandler& handler;
    std::vector<std::unique_ptr<Portal>> portals;
    WorkerShares worker_shares;  // outlives the sessions, whose connections have places
    std::map<Uuid, std::unique_ptr<ServerSession>> sessions;
    RememberedSessions retired{1024};  // taken over: they must not come back
    RememberedSessions lost{1024};     // without a path: they may be on their way back
    std::uint32_t sessions_ever = 0;
    std::uint64_t places_kept = 0;  // the sum of the sessions' (ServerSession::Inside::places)
    Timer closed_timer;
    // Refusals, by reason.
    LogRateLimit unparsed, without_extensions, without_descriptors, too_many;
    bool closing = false;
};

struct ServerSession::Inside final : ServerPathOwner, MessageCoreOwner {
    Inside(Server::Inside& its_server, Instant now)
        : server(its_server),
          number(server.sessions_ever++),
          admission(server.options.queue_depth),
          since(now),
          dispute_timer(server.environment.clock, this, member_call<&Inside::dispute_overdue>) {}
    ~Inside() { server.places_kept -= places; }

    // To be called after a connection came or a path went, and when the session is up.
    void count_connections() noexcept;
    // Whether a place is kept for a further connection: of those that the session has announced, or
    // because it had more before.
    bool has_place() const noexcept {
        if (connections() < connections_max) return true;
        return !up && places > 0 && connections() < places_kept_max;
    }
    // Whether it ends a path that its client has given up. It keeps no descriptor before that has
    // ended.
    bool succeeds(const ConnectRequestMessage& message) const noexcept;
    // Of the paths that have not ended.
    std::uint32_t connections() const noexcept;
    std::optional<NameRefusal> accept_name(ServerPath& path,
                                           const InfoRequestMessage& its_who) override;
    NameRefusal take_over(ServerSession& other, const ServerPath& path,
                          const InfoRequestMessage& its_who);
    void arrived_unnumbered(ServerPath& path, std::uint32_t permit) override;
    void lives(ServerPath& path) override;
    void request(ServerPath& path, OpSlot& slot) override;
    void no_longer_waits(ServerPath& path, OpSlot& slot) override {
        admission.drop(path.permit_of(slot), slot);
    }
    void windows_not_bound(ServerPath& path) override;
    void chunk_gone(void* chunk_context) override { server.handler.on_chunk_gone(chunk_context); }
    MessageCore& messages() noexcept override { return *message_core; }
    WorkerShares& worker_shares() noexcept override { return server.worker_shares; }
    void messages_reset() override {}
    void decide(OpSlot& slot, const Admission::Decision& decision);
    void serve(OpSlot& slot);
    void ended(ServerPath& path, OpSlot& slot, int error) override;
    // Lets the attempts go on that waited for one that has ended.
    void release(std::uint32_t permit);
    void path_closed(ServerPath& path) override;

    // A permit that is under way on `older` has arrived on `newer`, too, or was looked at later
    // there: see server_session_dispute.cpp.
    void dispute(ServerPath& newer, ServerPath& older);
    bool disputed() const noexcept { return newer_path != nullptr || older_path != nullptr; }
    void dispute_overdue();
    // One of the two has ended.
    void left_dispute(const ServerPath& path);
    // loser: is closed; null: has ended by itself.
    void end_dispute(ServerPath* loser, std::string_view why);

    // Returns the path for the connection, or a positive errno.
    std::expected<ServerPath*, int> find_or_make_path(const Server::Inside::Portal& portal,
                                                      const ConnectRequestMessage& message,
                                                      const ConnectRequest& request);
    ServerPath* newest(const Uuid& path_uuid) const noexcept;  // null: none
    bool may_be_succeeded(const ServerPath& path,
                          const ConnectRequestMessage& message) const noexcept;
    static bool joins(ServerPath& path, const Server::Inside::Portal& portal,
                      const ConnectRequestMessage& message);
    std::expected<ServerPath*, int> make_path(const Server::Inside::Portal& portal,
                                              const ConnectRequestMessage& message,
                                              const ConnectRequest& request);

    Server::Inside& server;
    const std::uint32_t number;  // among all sessions that ever were
    ServerSession* self = nullptr;
    Admission admission;
    InfoRequestMessage who;                   // what the session's first path said
    std::optional<MessageCore> message_core;  // outlives the paths
    std::vector<std::unique_ptr<ServerPath>> paths;
    Instant since;
    bool up = false;
    std::uint32_t connections_max = 0;  // the most that there were at a time, also in a former life
    // For connections that are still to come, as long as the session has not said who it is.
    std::uint32_t places = 0;
    // The two paths of a dispute. Null: that one has ended; both: there is no dispute.
    ServerPath* newer_path = nullptr;
    ServerPath* older_path = nullptr;
    bool older_lives = false;
    Timer dispute_timer;
};

}  // namespace rtrs
