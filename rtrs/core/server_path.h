// One path of a server session: its connections, the info exchange, requests in, answers out.
//
//   State       On                                     Goes to     Does
//   connecting  last connection accepted               (stays)     waits for the info request
//   connecting  info request accepted                  connected   info response, heartbeat
//   connecting  half-open timeout, failure             closing     disconnect
//   connected   failure, heartbeat timeout, close      closing     disconnect; no new operations
//   closing     endpoints drained, operations answered closed      the session forgets the path
//
// An operation that is running when its path fails runs to its end; its answer goes nowhere. One
// that waits for an earlier attempt is dropped. Only then is the path forgotten. A reconnect with
// the same identity is accepted when the endpoints are drained; of a client without sequences only
// when the path is forgotten: that acceptance tells it that nothing of the old path can happen any
// more.
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

#include "rtrs/base/seldom.h"
#include "rtrs/core/answer_buffers.h"
#include "rtrs/core/chunk_pool.h"
#include "rtrs/core/heartbeat.h"
#include "rtrs/core/message_link.h"
#include "rtrs/fabric.h"
#include "rtrs/server.h"
#include "rtrs/wire/connect.h"
#include "rtrs/wire/immediate.h"
#include "rtrs/wire/info.h"

namespace rtrs {

// One domain per path: its keys open nothing over another connection than its own. A path that goes
// takes its memory along, and nobody may be in the middle of writing to it.
struct ServerMemory {
    Fabric* fabric = nullptr;  // never null
    std::unique_ptr<ProtectionDomain> domain;
};

// Why a session may not be.
struct NameRefusal {
    std::string why;
    // debug: the layer above refuses it, and has said so in its own words.
    TraceLevel level = TraceLevel::info;
    std::error_code told{};  // to the client, by fabrics that can
};

// Heartbeats, their answers and what is ignored: so many in a second are taken of a client on a
// path. With the shortest interval that can be set there are two hundred.
inline constexpr std::uint32_t idle_messages_per_second = 10'000;

// What a path tells its session.
class ServerPathOwner {
  public:
    // The info request arrived: may a session of this name be?
    // With what the client says of itself: machine and life are 0 if it does not.
    virtual std::optional<NameRefusal> accept_name(ServerPath& path,
                                                   const InfoRequestMessage& who) = 0;
    // A request of a client that does not number them is here, and is looked at later.
    virtual void arrived_unnumbered(ServerPath& path, std::uint32_t permit) = 0;
    // A checked request. It is served, answered or made to wait.
    virtual void request(ServerPath& path, OpSlot& slot) = 0;
    // The path ends because its device has refused to bind a memory window.
    virtual void windows_not_bound(ServerPath& path) = 0;
    virtual void chunk_gone(void* chunk_context) = 0;
    // A request that ran has been answered; its slot is free.
    virtual void ended(ServerPath& path, OpSlot& slot, int error) = 0;
    // The path has died before the slot's turn came.
    virtual void no_longer_waits(ServerPath& path, OpSlot& slot) = 0;
    // Asked for only if the path has the feature.
    virtual MessageCore& messages() noexcept = 0;
    // Drained and nothing running: may be destroyed from inside this call.
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
    // Of its first connection; the others have the numbers after it.
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

    // Before everything else. ERRORS: ENOMEM.
    std::error_code prepare();
    // Instead of close(), for a path that could not be prepared.
    void abandon() noexcept { state_ = State::closed; }
    // One more connection of this path. ERRORS: EEXIST (its number is taken), as accept().
    std::error_code accept(ConnectRequest& request, const ConnectRequestMessage& message);
    // The connection of messages. ERRORS: ECONNRESET (not now), fabric errors.
    std::error_code accept_messages(ConnectRequest& request, const ConnectRequestMessage& message);
    // told: to the client, by fabrics that can.
    void close(std::string_view reason, TraceLevel level = TraceLevel::info,
               std::error_code told = {});
    // Posts what was promised, then closes: for a server that ends in peace.
    void close_after_answers(std::string_view reason);
    // A request has been looked at by admission: it waits in its slot, or is answered at once.
    void make_wait(OpSlot& slot);
    void run(OpSlot& slot) noexcept;
    // The handler has done with a request that ran.
    void end(OpSlot& slot, std::error_code error, std::uint32_t produced_bytes);
    // See ServerOp.
    bool use_answer_buffer(OpSlot& slot);
    // Answers, if the path still lives, and frees the slot.
    void respond(OpSlot& slot, std::error_code error, std::uint32_t produced_bytes);

    State state() const noexcept { return state_; }
    Instant since() const noexcept { return since_; }  // when it came to that state
    // It has ended, and is here for what runs in the storage.
    bool only_operations_left() const noexcept;
    const ServerPathIdentity& identity() const noexcept { return identity_; }
    // Was that connection of it accepted already?
    bool has_connection(std::uint16_t id) const noexcept { return connections_[id] != nullptr; }
    // Of one that has not served yet.
    std::uint32_t connections_to_come() const noexcept {
        if (state_ != State::connecting) return 0;
        return static_cast<std::uint32_t>(
            std::count(connections_.begin(), connections_.end(), nullptr));
    }
    std::string id() const;
    const std::string& label() const noexcept { return label_; }
    std::uint32_t running() const noexcept { return running_; }
    bool always_invalidates() const noexcept {
        return identity_.key_renewal == KeyRenewal::every_answer;
    }
    bool sequenced() const noexcept { return has(identity_.features, Feature::failover); }
    std::uint32_t permit_of(const OpSlot& slot) const noexcept;
    // A request with that permit has arrived, and is not looked at before its chunk's key is dead.
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
    void info_request(const Completion& completion);
    // Pins them: not for a client that has not said who it is.
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
    void post_heartbeat(Connection& over, std::uint32_t immediate);
    void beat();
    bool drained() const noexcept;
    void finish_if_done();
    void drop_waiting();
    void trace(TraceLevel level, std::string_view text);

    SessionEnvironment environment_;
    const ServerOptions& options_;
    Seldom bad_requests_;
    ServerPathIdentity identity_;
    std::string label_;
    ServerSession& session_;
    ServerMemory memory_;  // before all that is registered in it
    ChunkPool chunks_;
    std::unique_ptr<MemoryRegion> chunk_region_;
    std::unique_ptr<MemoryRegion> key_region_;
    AnswerBuffers answer_buffers_;
    ServerPathOwner& owner_;
    ImmediateCodec codec_;
    Heartbeat heartbeat_;
    Timer heartbeat_timer_;
    Instant judged_at_{};              // at a heartbeat of the client's
    Instant idle_since_{};             // the second in which they are counted begins
    std::uint32_t idle_messages_ = 0;  // that ask for nothing
    Timer half_open_timer_;
    Timer last_words_timer_;
    Timer finish_timer_;
    State state_ = State::connecting;
    Instant since_;
    std::vector<std::unique_ptr<Connection>> connections_;  // by connection id; null: not there yet
    std::unique_ptr<MemoryWindows> windows_;  // one per chunk, with always_invalidate; else null
    std::unique_ptr<MessageLink> link_;       // of messages
    std::uint32_t windows_bound_ = 0;         // of them, in order
    // Info request, then info response; given back when that has been sent.
    LazyMemory control_memory_;
    std::unique_ptr<MemoryRegion> control_region_;
    ServerPathCounters counters_;
    std::uint32_t running_ = 0;     // slots that are not free
    std::vector<OpSlot*> waiting_;  // for an earlier attempt; few, seldom
    std::uint32_t last_words_ = 0;  // still to be sent
    std::string last_reason_;       // not empty: ending after the answers
};

}  // namespace rtrs
