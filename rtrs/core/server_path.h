// One path of a server session: its connections, the info exchange, requests in, answers out.
//
//   State       On                                     Goes to     Does
//   connecting  last connection accepted               (stays)     waits for the info request
//   connecting  info request accepted                  connected   info response, heartbeat
//   connecting  half-open timeout, failure             closing     disconnect
//   connected   failure, heartbeat timeout, close      closing     disconnect; no new operations
//   closing     endpoints drained, operations answered closed      the session forgets the path
//
// An operation that is running when its path fails runs to its end; its answer goes nowhere. An
// operation that waits for an earlier attempt is dropped. The path is forgotten only after that. A
// reconnect with the same identity is accepted when the endpoints are drained. From a client
// without sequence numbers it is accepted only when the path is forgotten: the acceptance tells
// such a client that nothing of the old path can happen any more.
//
// OWNER: ServerSession. THREAD: the server's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rtrs/base/log_rate_limit.h"
#include "rtrs/core/answer_buffers.h"
#include "rtrs/core/chunk_pool.h"
#include "rtrs/core/heartbeat.h"
#include "rtrs/core/message_link.h"
#include "rtrs/core/worker_shares.h"
#include "rtrs/fabric.h"
#include "rtrs/server.h"
#include "rtrs/wire/connect.h"
#include "rtrs/wire/immediate.h"
#include "rtrs/wire/info.h"

namespace rtrs {

// Each path has a domain of its own: its keys open nothing over connections of other paths. A path
// that goes takes its memory along, and nobody may be writing to that memory then.
struct ServerMemory {
    Fabric* fabric = nullptr;  // never null
    std::unique_ptr<ProtectionDomain> domain;
};

// Why a session is refused.
struct NameRefusal {
    std::string why;
    // debug: the layer above refuses it, and has said so in its own words.
    TraceLevel level = TraceLevel::info;
    std::error_code told{};  // sent to the client by fabrics that can
};

// How many heartbeats, heartbeat answers and ignored messages per second are accepted from a client
// on a path. With the shortest interval that can be set there are two hundred.
inline constexpr std::uint32_t idle_messages_per_second = 10'000;

// What a path tells its session.
class ServerPathOwner {
  public:
    // The info request arrived: may there be a session of this name? who: what the client says of
    // itself; identity and life are 0 if it does not say them.
    virtual std::optional<NameRefusal> accept_name(ServerPath& path,
                                                   const InfoRequestMessage& who) = 0;
    // A request has arrived from a client without sequence numbers; it is looked at later. May
    // close the path.
    virtual void arrived_unnumbered(ServerPath& path, std::uint32_t permit) = 0;
    // The client has answered what ask() has asked, and all that the path had asked before.
    virtual void lives(ServerPath& path) = 0;
    // A checked request has arrived. It is served, answered or made to wait.
    virtual void request(ServerPath& path, OpSlot& slot) = 0;
    // The path ends because its device has refused to bind a memory window.
    virtual void windows_not_bound(ServerPath& path) = 0;
    virtual void chunk_gone(void* chunk_context) = 0;
    // A request that ran has its answer, which may still wait for room in the send queue.
    virtual void ended(ServerPath& path, OpSlot& slot, int error) = 0;
    // The path has died before the waiting slot's turn came.
    virtual void no_longer_waits(ServerPath& path, OpSlot& slot) = 0;
    // Called only if the path has the messages feature.
    virtual MessageCore& messages() noexcept = 0;
    virtual WorkerShares& worker_shares() noexcept = 0;
    // The path is drained and nothing is running: it may be destroyed from inside this call.
    virtual void path_closed(ServerPath& path) = 0;

  protected:
    ~ServerPathOwner() = default;
};

struct ServerPathIdentity {
    Uuid path_uuid;
    std::uint16_t connection_count = 1;
    std::uint16_t reconnect_count = 1;
    std::uint32_t features = 0;  // granted
    std::uint32_t portal = 0;
    KeyRenewal key_renewal = KeyRenewal::no;
    // Of its first connection; the others have the numbers that follow, unless its fabric knows
    // nearest workers.
    std::uint32_t worker = 0;
    std::string local_address;  // "HOST:PORT"
    std::string remote_address;
};

class ServerPath final : public MessageLinkOwner {
  public:
    enum class State : std::uint8_t { connecting, connected, closing, closed };

    ServerPath(SessionEnvironment environment, const ServerOptions& options,
               ServerPathIdentity identity, ServerSession& session, ServerMemory memory,
               ServerPathOwner& owner);
    ~ServerPath();
    ServerPath(const ServerPath&) = delete;
    ServerPath& operator=(const ServerPath&) = delete;

    // To be called before everything else. ERRORS: ENOMEM.
    std::error_code prepare();
    // Takes the place of close() for a path that could not be prepared.
    void abandon() noexcept { state_ = State::closed; }
    // Accepts one more connection of this path. ERRORS: EEXIST (its number is taken), as
    // ConnectRequest::accept().
    std::error_code accept(ConnectRequest& request, const ConnectRequestMessage& message);
    // Accepts the connection for messages. ERRORS: ECONNRESET (not possible now), fabric errors.
    std::error_code accept_messages(ConnectRequest& request, const ConnectRequestMessage& message);
    // told: what the client is told, by fabrics that can.
    void close(std::string_view reason, TraceLevel level = TraceLevel::info,
               std::error_code told = {});
    // Posts the answers that are owed, then closes: for a server that ends in an orderly way.
    void close_after_answers(std::string_view reason);
    // Admission has decided about a request: make_wait() lets it wait in its slot, run() ends the
    // wait.
    void make_wait(OpSlot& slot);
    void run(OpSlot& slot) noexcept;
    // From now on requests are not looked at when they arrive, but when go_on() is called.
    void hold_requests() noexcept { holds_ = true; }
    void go_on();
    // Asks the client for a sign of life out of turn. May close the path.
    void ask();
    // The permits of requests that wait.
    std::vector<std::uint32_t> waiting_permits() const;
    // The handler has finished a request that ran.
    void end(OpSlot& slot, std::error_code error, std::uint32_t produced_bytes);
    // See ServerOp.
    bool use_answer_buffer(OpSlot& slot);
    // Answers, if the path still lives, and frees the slot.
    void respond(OpSlot& slot, std::error_code error, std::uint32_t produced_bytes);

    State state() const noexcept { return state_; }
    Instant since() const noexcept { return since_; }  // when it entered this state
    // The path has ended, and remains only for operations that run in the storage.
    bool only_operations_left() const noexcept;
    const ServerPathIdentity& identity() const noexcept { return identity_; }
    // Whether this connection of the path was already accepted.
    bool has_connection(std::uint16_t id) const noexcept { return connections_[id] != nullptr; }
    Instant last_accept() const noexcept { return last_accept_; }
    // How many there are; 0 once the path ends.
    std::uint32_t connections_accepted() const noexcept {
        return state_ == State::connecting || state_ == State::connected ? accepted_ : 0;
    }
    // How many connections are still to come; 0 once the path serves or ends.
    std::uint32_t connections_to_come() const noexcept {
        if (state_ != State::connecting) return 0;
        return static_cast<std::uint32_t>(connections_.size()) - accepted_;
    }
    std::string id() const;
    const std::string& label() const noexcept { return label_; }
    std::uint32_t running() const noexcept { return running_; }
    bool always_invalidates() const noexcept {
        return identity_.key_renewal == KeyRenewal::every_answer;
    }
    bool sequenced() const noexcept { return has(identity_.features, Feature::failover); }
    std::uint32_t permit_of(const OpSlot& slot) const noexcept;
    // A request with this permit has arrived, and is not looked at before its chunk's key is dead.
    bool revokes(std::uint32_t permit) const noexcept {
        return chunks_.slot(permit).state == OpSlot::State::revoking;
    }
    const Fabric& fabric() const noexcept { return *memory_.fabric; }
    ServerPathStatus status() const;

  private:
    struct Connection;

    // MessageLinkOwner
    void message_link_lost(MessageLink& link, WasUp was_up, std::error_code reason,
                           std::string_view why) override;
    void message_link_drained(MessageLink& link) override;

    void connection_ended(std::error_code reason);
    void completed(Connection& connection, const Completion& completion);
    void revoked(OpSlot& slot);
    std::uint32_t place_for(const ConnectRequest& request, Connection& connection);
    void info_request(const Completion& completion);
    // This pins the chunks, so it is not done for a client that has not said who it is.
    std::error_code register_chunks();
    void bind_windows();
    void serve_path();
    std::error_code post_receives();
    std::error_code send_info_response();
    void received(Connection& connection, const Completion& completion);
    bool may_be_idle() noexcept;
    void request_arrived(Connection& connection, const Immediate& immediate);
    void serve(OpSlot& slot);
    void count(const RequestMessage& request) noexcept;
    void refuse(OpSlot& slot, const RequestRefusal& refusal);
    std::error_code post_answer(OpSlot& slot);
    std::error_code post_chain(Connection& connection, OpSlot& slot, std::span<WorkRequest> chain);
    std::error_code renew_key(Connection& connection, std::uint32_t permit);
    void answer_posted(OpSlot& slot);
    void post_waiting(Connection& connection);
    void say_last_word(Connection& connection);
    void sent(Connection& connection, std::uint64_t context);
    void say_last_words();
    void last_words_overdue();
    void asked(Connection& by);
    bool takes_nothing(Connection& connection, Instant now) const;
    // False: it could not be posted.
    bool post_heartbeat(Connection& over, std::uint32_t immediate);
    void acknowledged();
    void beat();
    bool drained() const noexcept;
    void finish_if_done();
    void drop_held();
    void drop_waiting();
    void trace(TraceLevel level, std::string_view text);

    SessionEnvironment environment_;
    const ServerOptions& options_;
    LogRateLimit bad_requests_;
    ServerPathIdentity identity_;
    std::string label_;
    ServerSession& session_;
    ServerMemory memory_;  // declared before all that is registered in it
    ChunkPool chunks_;
    std::unique_ptr<MemoryRegion> chunk_region_;
    std::unique_ptr<MemoryRegion> key_region_;
    AnswerBuffers answer_buffers_;
    ServerPathOwner& owner_;
    ImmediateCodec codec_;
    Heartbeat heartbeat_;
    Timer heartbeat_timer_;
    Instant judged_at_{};              // when connections were last judged, see asked()
    Instant idle_since_{};             // start of the second in which these are counted:
    std::uint32_t idle_messages_ = 0;  // messages that ask for nothing
    Timer half_open_timer_;
    Timer last_words_timer_;
    Timer finish_timer_;
    State state_ = State::connecting;
    Instant since_;
    std::vector<std::unique_ptr<Connection>> connections_;  // by connection id; null: not there yet
    Instant last_accept_;                                   // or when the path was made
    std::uint32_t accepted_ = 0;                            // how many of them are not null
    std::unique_ptr<MemoryWindows> windows_;  // one per chunk, with always_invalidate; else null
    std::unique_ptr<MessageLink> link_;       // for messages
    std::uint32_t windows_bound_ = 0;         // how many of windows_, in order
    // The info request, then the info response; freed when the response has been sent.
    LazyMemory control_memory_;
    std::unique_ptr<MemoryRegion> control_region_;
    ServerPathCounters counters_;
    std::uint32_t running_ = 0;  // slots that are not free
    // Slots from this number on never had a request. Their memory was never touched, and a path's
    // end must not touch all of it.
    std::uint32_t slots_used_ = 0;
    std::vector<OpSlot*> waiting_;  // for an earlier attempt; seldom any, and few
    std::vector<OpSlot*> held_;     // in the order of arrival
    bool holds_ = false;
    // Heartbeats that were sent, and answers that came. An answer that comes late is not taken for
    // one to a later question.
    std::uint32_t questions_ = 0;
    std::uint32_t answers_ = 0;
    bool asks_for_owner_ = false;   // of the last of them the owner wants to hear
    std::uint32_t last_words_ = 0;  // still to be sent
    std::string last_reason_;       // not empty: the path ends after the answers
};

}  // namespace rtrs
