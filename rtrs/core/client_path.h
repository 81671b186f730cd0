// One physical route of a client session: its connections, the info exchange, the chunk table, and
// the posts and completions of requests.
//
// OWNER: ClientSession. THREAD: the session's. The life cycle is in PathMachine's table; this file
// carries out its actions.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <vector>

#include "rtrs/base/lazy_array.h"
#include "rtrs/client.h"
#include "rtrs/core/heartbeat.h"
#include "rtrs/core/message_link.h"
#include "rtrs/core/packet_doubt.h"
#include "rtrs/core/path_machine.h"
#include "rtrs/fabric.h"
#include "rtrs/wire/connect.h"
#include "rtrs/wire/immediate.h"
#include "rtrs/wire/request.h"

namespace rtrs {

// The session's memory as registered with one fabric. The buffers are registered once, when the
// sizes are known and a path of the fabric connects.
struct FabricMemory {
    Fabric* fabric = nullptr;
    std::unique_ptr<ProtectionDomain> domain;
    std::unique_ptr<MemoryRegion> payload;  // one payload buffer per permit
    std::unique_ptr<MemoryRegion> headers;  // one header area per permit
    std::unique_ptr<MemoryRegion> control;  // the response of a user message
};

// What a path needs to know of a request in order to post it.
struct PathRequest {
    std::uint32_t permit = 0;
    Direction direction = Direction::write;
    std::uint32_t payload_bytes = 0;
    std::uint32_t message_bytes = 0;
    Segment payload{};            // write: source; read: unused
    RemoteBuffer target{};        // read with payload: where the server shall write
    std::byte* header = nullptr;  // the user message, with room for the request message behind it
    Sequence sequence = 0;
    std::uint16_t connection = 0;
};

// The name by which operators call the path.
std::string label_of(const PathAddress& address);
// "it offers a queue depth of 512 with ..."
std::string offer_text(std::uint32_t queue_depth, std::uint32_t io_bytes,
                       std::uint32_t header_bytes);

// Why a server cannot be used.
struct Unusable {
    std::error_code error;
    std::string why;  // for people: "its queue depth has shrunk to 8, this session needs 16"
};

class ClientPath;

// What a path tells its session. Called from the reactor's turn only.
class ClientPathOwner {
  public:
    // May these chunks be used? Asked when the first connection was accepted, and again before the
    // path is up. Allocates on first use.
    virtual std::expected<void, Unusable> accept_geometry(ClientPath& path,
                                                          const ChunkGeometry& geometry) = 0;
    virtual bool any_path_connected() const noexcept = 0;
    // A dial leaves that makes the session if the server has none.
    virtual void session_dialled() = 0;
    // The path was accepted. Whether it has to wait because it may be in another session than the
    // paths that are up; then session_is_known() follows, or the attempt ends.
    virtual bool has_to_wait(ClientPath& path) = 0;
    virtual void path_up(ClientPath& path) = 0;
    // An attempt has failed, for another reason than the attempt before it: text.
    virtual void path_not_connected(ClientPath& path, std::error_code reason,
                                    std::string_view text) = 0;
    // The path is still up, but nothing may be posted on it any more; path_down follows.
    virtual void path_ending(ClientPath& path) noexcept = 0;
    virtual void path_down(ClientPath& path, std::error_code reason) = 0;
    // The path's endpoints are drained: the requests that it left unanswered belong to the session
    // again.
    virtual void path_drained(ClientPath& path) = 0;
    virtual void path_closed(ClientPath& path) = 0;
    // False: nobody waits for this answer, so the peer is faulty.
    virtual bool answered(ClientPath& path, std::uint16_t connection, std::uint32_t permit,
                          int error) = 0;
    // A heartbeat was answered, and its round trip measured.
    virtual void latency_measured(ClientPath& path, Duration latency) = 0;
    // Null: no messages are wanted.
    virtual MessageCore* messages() noexcept = 0;
    // The server says that a newer session of this client has taken this one's place.
    virtual void taken_over() = 0;

  protected:
    ~ClientPathOwner() = default;
};

class ClientPath final : public MessageLinkOwner {
  public:
    ClientPath(SessionEnvironment environment, const ClientSessionOptions& options,
               const PathAddress& address, const Uuid& session_uuid, FabricMemory& memory,
               ClientPathOwner& owner);
    ~ClientPath();
    ClientPath(const ClientPath&) = delete;
    ClientPath& operator=(const ClientPath&) = delete;

    void open() {
        doubt_.forget();
        handle(PathMachine::Event::open);
    }
    void close() { handle(PathMachine::Event::close); }
    // Called by the operator; see path_machine.h. ERRORS: EBUSY (reconnect, while the path is being
    // connected or closed).
    std::error_code reconnect();
    std::error_code disconnect();
    void set_priority(PathPriority priority) noexcept { address_.priority = priority; }
    void set_attempts_max(std::optional<std::uint32_t> attempts) noexcept {
        machine_.set_attempts_max(attempts);
    }
    // The last other path was lost.
    void needed() { handle(PathMachine::Event::needed); }
    // Whether a user message of the session is under way on this path. Meanwhile a server without
    // sequence numbers may answer nothing else, and is not suspected for that.
    void user_message_is_under_way(bool is_so);
    // Probes the path, which ends soon if the server stays silent. False: not connected, a probe is
    // already under way, or the server may be busy.
    bool probe();
    // As probe(), though nothing is late: the server shall give a sign.
    void ask();
    // Heartbeats that were sent on the service connection since the path was dialled, and how many
    // answers have come.
    std::uint64_t asked() const noexcept { return asked_; }
    std::uint64_t answered() const noexcept { return answered_; }
    // The path is in the session of those that are up, or none is up any more.
    void session_is_known();
    // For a connection on which an answer is late: it alone may be silent, since the heartbeats are
    // on another one. doubt_connection() asks on it. judge_connection() ends the path if the
    // connection has been silent for `silence`; it returns when to judge again, Instant::max() if
    // that is not known to help.
    void doubt_connection(std::uint16_t connection);
    Instant judge_connection(std::uint16_t connection, Duration silence);
    // Ends the connections because of what the peer did; the path is dialled again.
    void fail(std::error_code reason, std::string_view what);

    bool connected() const noexcept { return machine_.state() == PathState::connected; }
    bool closed() const noexcept { return machine_.state() == PathState::closed; }
    bool idle() const noexcept { return machine_.state() == PathState::idle; }
    // Closed or closing because the operator disconnected it.
    bool disconnected() const noexcept {
        return machine_.close_cause() == PathMachine::CloseCause::disconnected;
    }
    // Whether its server takes sequence numbers. Known once the first connection was accepted.
    bool sequenced() const noexcept { return has(features_, Feature::failover); }
    bool has_messages() const noexcept { return has(features_, Feature::messages); }
    // A permit always travels on the same connection of a path, so that what belongs to it stays on
    // one core.
    std::uint16_t connection_of(std::uint32_t permit) const noexcept {
        const std::uint32_t for_io = connection_count_ - 1u;
        return for_io == 1 ? 1 : static_cast<std::uint16_t>(1 + permit % for_io);
    }
    // ASSUMES: connected(). A request that cannot be posted is reported by path_drained, like any
    // other request that stays unanswered.
    void post(const PathRequest& request);

    // Dials over the addresses of `via`, but with this path's id (fence_probe.h).
    // ERRORS: as Fabric::connect.
    std::expected<std::unique_ptr<Endpoint>, std::error_code> dial_over(ClientPath& via,
                                                                        EndpointHandler& handler);

    const std::string& label() const noexcept { return label_; }
    // The label without the session's name, as operators give it.
    std::string_view address_label() const noexcept {
        return std::string_view(label_).substr(options_.name.size() + 1);
    }
    FabricMemory& memory() noexcept { return memory_; }
    PathStatus status() const;

  private:
    struct Connection;
    // The send of one permit: the device may use the permit's memory until the send has completed.
    // An answer that arrives earlier waits for that.
    struct Sending {
        bool under_way;
        bool answered;
        int error;  // of the answer
    };

    // MessageLinkOwner
    void message_link_lost(MessageLink& link, WasUp was_up, std::error_code reason,
                           std::string_view why) override;
    void message_link_drained(MessageLink& link) override;
    void dial_messages();

    void handle(PathMachine::Event event);
    void apply(PathMachine::Actions actions);
    void dial(std::uint16_t connection);
    // A connection has ended. An orderly end of one connection ends the path only when the others
    // have ended too, or when their time is over.
    void peer_ended(std::error_code reason, std::string_view what);
    bool waits() const noexcept { return waits_ && machine_.state() == PathState::exchanging; }
    bool can_be_probed() const noexcept;
    bool reads_to_the_end() const noexcept { return last_answers_timer_.armed(); }
    void last_answers_overdue();
    void established(Connection& connection, Bytes private_data);
    std::expected<void, Unusable> accept_first(const ConnectResponseMessage& response);
    // As fail(), because of what this side has found wrong with the server.
    void cannot_use(const Unusable& server);
    std::error_code prepare_receives(Connection& connection);
    std::error_code prepare_control(Connection& connection);
    static void control_used(Connection& connection) noexcept;
    void send_info_request();
    void info_response(Connection& connection, const Completion& completion);
    void completed(Connection& connection, const Completion& completion);
    void received(Connection& connection, const Completion& completion);
    std::error_code try_post(Connection& connection, const PathRequest& request);
    void post_waiting(Connection& connection);
    void sent(Connection& connection, std::uint64_t context);
    void answer(Connection& connection, const Completion& completion, const Immediate& immediate);
    void tell_answer(Connection& connection, std::uint32_t permit, int error);
    bool renew_key(Connection& connection, const Completion& completion, std::uint32_t permit);
    void repost(Connection& connection, const Completion& completion);
    void drained();
    std::uint32_t features_wanted() const noexcept;
    std::error_code post_heartbeat(Connection& connection, std::uint32_t immediate);
    Instant judge_question(Connection& late);
    ConnectRequestMessage connect_request(std::uint16_t connection) const noexcept;
    void disconnect_all();
    void post_heartbeat(std::uint32_t immediate);
    void beat();
    EndpointOptions::Packets packets() const noexcept;
    void doubt_packets(std::error_code reason);
    void trace(TraceLevel level, std::string_view text);
    void note_failure(std::error_code reason, std::string text, TraceLevel level);
    void trace_backoff();
    void trace_closed();

    SessionEnvironment environment_;
    const ClientSessionOptions& options_;
    PathAddress address_;
    std::string label_;
    Uuid path_uuid_;
    Uuid session_uuid_;
    FabricMemory& memory_;
    ClientPathOwner& owner_;
    PathMachine machine_;
    Heartbeat heartbeat_;
    PacketDoubt doubt_;
    // The path was probed for a late answer, and no request was answered since.
    bool answers_are_late_ = false;
    bool chunks_came_ = false;  // the info response of this attempt has arrived
    bool waits_ = false;        // ... and the session has to become known
    std::uint64_t asked_ = 0;
    std::uint64_t answered_ = 0;
    Timer machine_timer_;
    Timer heartbeat_timer_;
    Timer last_answers_timer_;  // see reads_to_the_end()
    std::uint16_t connection_count_;
    std::uint16_t reconnect_count_ = 0;
    FirstConnection first_connection_ = FirstConnection::yes;
    KeyRenewal key_renewal_ = KeyRenewal::no;
    std::uint32_t features_ = 0;  // in force
    ChunkGeometry geometry_{};
    ImmediateCodec codec_{1};
    std::vector<std::unique_ptr<Connection>> connections_;
    std::optional<Instant> dial_ends_;  // when the newest dial does, until it is established
    // The connection for messages, while the path is connected and until it is drained.
    std::unique_ptr<MessageLink> link_;
    Timer link_timer_;
    LazyArray<BufferDescriptor> chunks_;  // the server's, by permit
    LazyArray<Sending> sending_;          // by permit
    std::string local_host_;
    std::error_code reason_;
    std::string reason_text_;
    bool reason_is_news_ = false;  // it has just been logged
};

}  // namespace rtrs
