// One connection: its two sides, what is under way between them, and the rules of RC.
//
// Each side has a pipe of messages and a pipe of answers to its work (acknowledgements, refusals,
// data read). A pipe keeps order; pipes are independent of each other. Only the head of a pipe is
// in the event queue.
//
// A side's life (SimEndpoint::State):
//   dialling | accepting -> established -> down -> draining -> drained
// dialling, accepting -> down when refused, reset or timed out. down: on_disconnected (or
// on_rejected) is queued; draining: buffers are free, flushed completions are handed out.
//
// LIFE: reference counted by its endpoints, its unanswered request and its scheduled events.
#pragma once

#include <array>

#include "rtrs/fabric/sim/buffer_pool.h"
#include "rtrs/fabric/sim/ring_queue.h"
#include "rtrs/fabric/sim/sim_fabric.h"

namespace rtrs::sim {

class SimEndpoint;

using SideIndex = std::size_t;  // 0 dialled, 1 listened
constexpr SideIndex other(SideIndex side) noexcept { return 1 - side; }

struct Message {
    enum class Kind : std::uint8_t { connect, accept, reject, refuse, ready, work, goodbye, reset };
    Instant arrival{};
    Kind kind = Kind::work;
    WorkOpcode opcode = WorkOpcode::send;
    std::uint8_t segments = 0;
    std::uint32_t bytes = 0;
    std::uint32_t immediate = 0;
    Key invalidate = 0;
    RemoteBuffer remote{};
    std::array<Segment, Endpoint::max_segments> local{};
    BufferPool::Buffer snapshot{};  // if set, used instead of local
    std::uint64_t posted_sum = 0;   // sum of the source when posted, if that is watched
    std::span<const Segment> source() const noexcept { return {local.data(), segments}; }
};

struct Answer {
    Instant arrival{};
    CompletionStatus status = CompletionStatus::success;
    std::uint32_t bytes = 0;
    BufferPool::Buffer data{};  // of a read
};

template <typename T>
struct Pipe {
    RingQueue<T> queue;
    Instant last_arrival{};
    bool scheduled = false;
    bool blocked = false;
    Instant blocked_since{};
    std::uint32_t blocks = 0;  // counted, so that an old timeout is not taken for a new one
};

// How the peer learns that a side went down: by a goodbye, by an answer that is already on its way
// (or because it knows), or not at all.
enum class Farewell : std::uint8_t { goodbye, answered, silent };

// Why a side goes down, and which status its first outstanding request of each kind gets.
struct Failure {
    std::error_code reason{};
    CompletionStatus send = CompletionStatus::flushed;
    CompletionStatus receive = CompletionStatus::flushed;
    Farewell farewell = Farewell::goodbye;
    std::error_code told{};  // sent with the goodbye: an Error, or nothing
};

// The checksum of the bytes that a message's source has now.
std::uint64_t source_sum(std::span<const Segment> source) noexcept;

class Connection final : public EventSink {
  public:
    enum class Event : std::uint8_t {
        message,
        answer,
        turn,
        drain,
        dial_timeout,
        unreachable,
        message_timeout,
        answer_timeout,
        revoke,
    };
    struct Ends {
        SocketAddress dialled_from, dialled_to;
    };

    Connection(Network& network, Process& dialler, const Ends& ends, Bytes private_data,
               EndpointOptions::Packets packets);

    void hold() noexcept { ++holds_; }
    // May destroy the connection.
    void release();
    void schedule(Instant at, Event event, SideIndex side, std::uint32_t generation = 0);
    void on_event(std::uint64_t argument) override;

    void send(SideIndex from, Message message);
    void answer(SideIndex to, Answer answer);
    // The side sends no more: a drawn part of what is under way still arrives.
    void depart(SideIndex side, Farewell farewell, std::error_code told = {});
    // From here on the source memory of what is under way is not read any more.
    void let_go(SideIndex side);
    // Copies the payload.
    void snapshot(Message& message);
    // The source is about to be read: checks that it is as it was when posted.
    void watch_source(const Message& message);
    // The side's process has ended. answered: a reset tells its peer.
    void vanish(SideIndex side, Farewell farewell);
    // One side, or both, find the connection reset.
    void reset(SideIndex side);
    void reset_both();

    void attach(SideIndex side, SimEndpoint& endpoint, Process& process);
    void detach(SideIndex side) noexcept { sides_[side].endpoint = nullptr; }
    SimEndpoint* endpoint(SideIndex side) noexcept { return sides_[side].endpoint; }
    Process* process(SideIndex side) noexcept { return sides_[side].process; }
    Network::AddressId address_id(SideIndex side) const noexcept { return sides_[side].address_id; }
    const SocketAddress& address(SideIndex side) const noexcept { return sides_[side].address; }
    bool dialler_gone() const noexcept { return dialler_gone_; }
    // For how long what the side has sent, or the acknowledgement of it, has been held back.
    Duration unacknowledged(SideIndex side) const noexcept;
    // For how long nothing has come to the side, provided that all it has sent has arrived, or is
    // kept.
    Duration quiet(SideIndex side) const noexcept {
        const Side& its = sides_[side];
        const bool all_taken = its.messages.queue.empty() || its.kept;
        return all_taken ? world().now() - its.heard : Duration::zero();
    }
    void unblock();
    // What the side has sent, and will send, arrives only after keep_nothing().
    void keep(SideIndex side) noexcept { sides_[side].kept = true; }
    void keep_nothing();

    MutableBytes request_data() noexcept { return {request_.data(), request_bytes_}; }
    MutableBytes reply_data() noexcept { return {reply_.data(), reply_bytes_}; }
    void set_reply(Bytes private_data);
    SimWorld& world() const noexcept { return network_.world(); }

    std::size_t index = 0;  // in the network's list

  private:
    friend class Network;
    enum class Way : std::uint8_t { free, blocked, stalled };
    struct Side {
        SocketAddress address;
        Network::AddressId address_id = Network::nowhere;
        Process* process = nullptr;
        SimEndpoint* endpoint = nullptr;
        Pipe<Message> messages;  // from this side
        Pipe<Answer> answers;    // to this side
        bool silent = false;     // vanished: a message to it is answered by a reset
        bool kept = false;       // what this side sends is kept
        Instant heard{};         // when something last came
    };

    ~Connection();  // by release(), or by the network at its end
    // The way for a message of this many bytes. later: when a stalled way is free.
    Way way(SideIndex from, SideIndex to, std::uint32_t bytes, Instant& later) noexcept;
    template <typename T>
    void push(Pipe<T>& pipe, T item, Event event, SideIndex side);
    template <typename T>
    bool ready(Pipe<T>& pipe, SideIndex from, SideIndex to, Event event, SideIndex side);
    template <typename T>
    void next(Pipe<T>& pipe, Event event, SideIndex side);
    template <typename T>
    void unblock(Pipe<T>& pipe, SideIndex from, SideIndex to, Event event, SideIndex side);
    void on_message(SideIndex from);
    void on_answer(SideIndex to);
    bool waits(SideIndex side) noexcept;
    void on_timeout(SideIndex side, bool still_blocked);
    void on_endpoint_event(Event event, SideIndex side);
    void deliver(SideIndex from, Message& message);
    void deliver_connect();
    void deliver_to(SimEndpoint& endpoint, SideIndex from, Message& message);
    void drop(Message& message);
    void drop_all(SideIndex from);
    std::size_t pad(std::size_t bytes, std::size_t room);

    Network& network_;
    std::uint64_t number_;
    EndpointOptions::Packets packets_;
    std::array<Side, 2> sides_;
    std::array<std::byte, private_data_request_max> request_{};
    std::array<std::byte, private_data_reply_max> reply_{};
    std::size_t request_bytes_ = 0;
    std::size_t reply_bytes_ = 0;
    std::uint32_t holds_ = 0;
    bool dialler_gone_ = false;
};

class SimEndpoint final : public Endpoint {
  public:
    enum class State : std::uint8_t { dialling, accepting, established, down, draining, drained };

    SimEndpoint(Connection& connection, SideIndex side, Domain& domain,
                const EndpointOptions& options, EndpointHandler& handler);
    ~SimEndpoint() override;
    std::error_code post(std::span<const WorkRequest> chain) override;
    std::error_code post_receive(std::uint64_t context, Segment buffer) override;
    SourceRelease source_release() const noexcept override;
    RevokeResult post_revoke(MemoryWindow window, std::uint64_t context) override;
    using Endpoint::disconnect;
    void disconnect(std::error_code why) override;
    std::string local_address() const override;
    std::string remote_address() const override;
    Duration unacknowledged() const noexcept override;
    Duration quiet() const noexcept override;

    State state() const noexcept { return state_; }
    void establish();
    // The next three functions queue a report, which turn() or wake() hands out. The first report
    // that ends the endpoint counts.
    void reject();
    void fail(const Failure& failure);
    void drain();
    void complete_revoke();
    // Hands out what is queued. The endpoint may be destroyed afterwards.
    void turn();
    // As turn(), but later.
    void wake();
    // Takes a message of the peer; returns what the peer is to be told.
    Answer receive(const Message& message);
    // Takes the peer's answer to the oldest request under way.
    void complete(Answer& answer);

  private:
    struct Work {
        std::uint64_t context = 0;
        WorkOpcode opcode = WorkOpcode::send;
        Signal signal = Signal::none;
        Segment target{};  // of a read
        // Watched until it completes: the segments that it named, and their checksum at the time.
        std::array<Segment, max_segments> local{};
        std::uint8_t segments = 0;
        std::uint64_t posted_sum = 0;  // 0: not watched
        std::span<const Segment> source() const noexcept { return {local.data(), segments}; }
    };
    struct Receive {
        std::uint64_t context = 0;
        Segment buffer{};
    };
    struct Revoke {
        std::uint64_t context = 0;
        Key key = 0;
    };
    struct Report {
        enum class Kind : std::uint8_t { established, rejected, disconnected, completion };
        Kind kind = Kind::completion;
        Completion completion{};
    };

    std::error_code check(std::span<const WorkRequest> chain) const;
    std::size_t taken_places() const noexcept;
    void start(const WorkRequest& request);
    void go_down(Report::Kind first, const Failure& failure);
    void finish_binds();
    Answer refuse(CompletionStatus status);
    Answer receive_send(const Message& message);
    Answer receive_write(const Message& message);
    Answer receive_read(const Message& message);
    void complete(const Work& work, CompletionStatus status);
    void flush();
    void watch_until_completion(const Message& message);
    void report(const Completion& completion);
    void hand_out(const Report& report);
    bool alive() noexcept;
    void place(const Message& message, std::byte* target);

    Connection& connection_;
    SideIndex side_;
    Domain& domain_;
    Process& process_;
    EndpointOptions options_;
    EndpointHandler& handler_;
    State state_;
    Failure failure_{};
    RingQueue<Work> work_;
    RingQueue<Receive> receives_;
    RingQueue<Revoke> revokes_;
    RingQueue<Report> reports_;
    Instant last_revoke_{};
    std::size_t held_slots_ = 0;  // of arrived, unsignalled work (freed_by_completion)
};

class SimConnectRequest final : public ConnectRequest {
  public:
    explicit SimConnectRequest(Connection& connection) noexcept : connection_(&connection) {
        connection.hold();
    }
    ~SimConnectRequest() override;
    Bytes private_data() const noexcept override { return connection_->request_data(); }
    std::string local_address() const override { return connection_->address(1).text(); }
    std::string remote_address() const override { return connection_->address(0).text(); }
    std::expected<std::unique_ptr<Endpoint>, std::error_code> accept(
        ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
        EndpointHandler& handler) override;
    void reject(Bytes private_data) override;

  private:
    Connection* connection_;
    bool answered_ = false;  // or the peer has gone
};

template <typename Each>
void Network::for_each_between(AddressId from, AddressId to, Each each) {
    for (Connection* connection : connections_) {
        for (const SideIndex side : {SideIndex{0}, SideIndex{1}}) {
            if (connection->address_id(side) != from) continue;
            if (connection->address_id(other(side)) != to) continue;
            each(*connection, side);
            break;
        }
    }
}

}  // namespace rtrs::sim
