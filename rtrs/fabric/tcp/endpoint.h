// One connection of the TCP fabric.
//
// | State       | On                              | Goes to     | Does                            |
// | ----------- | ------------------------------- | ----------- | ------------------------------- |
// | connecting  | accept frame                    | established | on_established                  |
// | connecting  | reject frame                    | closing     | on_rejected                     |
// | connecting  | refused, timeout, bad frame     | closing     | on_disconnected                 |
// | adopted     | end of turn                     | established | on_established                  |
// | established | end of stream, violation        | closing     | goodbye frame, on_disconnected  |
// | all but the two last | disconnect()           | closing     | the same, with no reason        |
// | established | finish()                        | closing     | the same; lingers               |
// | closing     | ring work done, revokes done,   | drained     | flush, on_drained               |
// |             | does not linger                 |             |                                 |
//
// A connection lingers until its peer has ended it too, or has had its time (base/last_bytes.h);
// what arrives meanwhile is dropped.
//
// Files: endpoint.cpp life cycle, endpoint_send.cpp posted work, endpoint_receive.cpp the incoming
// stream, dial.h/.cpp the dialling side's handshake.
//
// THREAD: the fabric's. Handlers are called from completions and turn-end tasks only (P3).
#pragma once

#include <array>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <system_error>

#include "rtrs/base/intrusive_list.h"
#include "rtrs/base/last_bytes.h"
#include "rtrs/fabric.h"
#include "rtrs/fabric/tcp/crc32c.h"
#include "rtrs/fabric/tcp/domain.h"
#include "rtrs/fabric/tcp/frame.h"
#include "rtrs/fabric/tcp/receive_queue.h"
#include "rtrs/fabric/tcp/reserved_memory.h"
#include "rtrs/fabric/tcp/send_queue.h"
#include "rtrs/fabric/tcp/zero_copy_sends.h"
#include "rtrs/fabrics.h"
#include "rtrs/sockets/address.h"

namespace rtrs::tcp {

class Dial;

class TcpEndpoint final : public Endpoint, public ListLink {
  public:
    // How many read requests of the peer this side holds at one time.
    static constexpr std::uint16_t reads_max = 64;
    // The peer may send a further request as soon as it has an answer that we do not yet know to be
    // sent.
    static constexpr std::uint16_t answers_max = 2 * reads_max;

    struct Setup {
        Reactor& reactor;
        TcpDomain& domain;
        const EndpointOptions& depths;
        EndpointHandler& handler;
        Tracer* tracer;  // TcpFabricOptions::tracer
    };
    // ERRORS: ENOMEM, EINVAL (depths).
    static std::expected<std::unique_ptr<TcpEndpoint>, std::error_code> create(const Setup& setup);
    ~TcpEndpoint() override;

    // What both sides have agreed on.
    struct Agreement {
        SendQueue::PayloadCrc payload_crc = SendQueue::PayloadCrc::computed;
        std::uint16_t peer_reads_max = 0;
    };
    struct DialOptions {
        const Address* source = nullptr;  // null: any
        const Address& destination;
        Bytes private_data;
        SendQueue::PayloadCrc payload_crc;
        Duration timeout;
    };
    // Begins to connect. To be called once, and instead of adopt().
    void dial(const DialOptions& options);
    // Takes a socket whose handshake is done; on_established follows.
    void adopt(int fd, const Agreement& agreement);
    // From now on large payloads are sent without a copy where that is possible. Only for memory
    // that is not used for anything else before the work has completed, or before the peer has told
    // that it has the payload.
    void send_without_copies();

    std::error_code post(std::span<const WorkRequest> chain) override;
    std::error_code post_receive(std::uint64_t context, Segment buffer) override;
    RevokeResult post_revoke(MemoryWindow window, std::uint64_t context) override;
    using Endpoint::disconnect;
    void disconnect(std::error_code why) override;
    void finish(std::error_code why) override;
    Duration unacknowledged() const noexcept override;
    Duration quiet() const noexcept override;
    void ask_network(bool on) noexcept override;
    std::string local_address() const override;
    std::string remote_address() const override;

    // For the domain: a revoke of this endpoint took effect.
    void revoked() noexcept;
    // For the domain: ends the connection if it is receiving into the slot's memory.
    void fail_placing(std::uint32_t slot);

  private:
    friend class Dial;
    enum class State : std::uint8_t { idle, connecting, adopted, established, closing, drained };

    struct Read {
        Segment target{};
        std::uint64_t work = 0;
        std::uint32_t id = 0;
    };
    struct Answer {
        std::uint64_t end = 0;   // stream position behind the answer
        std::uint32_t slot = 0;  // key slot of the memory it is sent from; 0: none
    };
    // A bounded queue of plain values in reserved memory, since most connections never read.
    template <typename T, std::size_t size>
    struct Fifo {
        explicit Fifo(T* its_items) noexcept : items(its_items) {}
        T* items;
        std::uint32_t head = 0;
        std::uint32_t tail = 0;
        std::uint32_t count() const noexcept { return tail - head; }
        bool empty() const noexcept { return head == tail; }
        T& front() noexcept { return items[head % size]; }
        void push(const T& item) noexcept { items[tail++ % size] = item; }
        void pop() noexcept { ++head; }
    };

    TcpEndpoint(const Setup& setup, ReservedMemory read_memory);

    // Life cycle.
    void fail(std::error_code reason);
    // As fail(), because of what the peer did; the log says what.
    void refuse(std::error_code reason, const std::string& what);
    void say_goodbye() noexcept;
    void schedule() noexcept { reactor_.at_turn_end(turn_task_); }
    void end_of_turn();
    void establish(Bytes private_data);
    void close_step();
    void await_peers_end();
    void look_at_last_bytes() noexcept;
    void end_lingering() noexcept;
    bool ring_idle() const noexcept;
    void flush();
    void deliver_revoked();
    void complete(CompletionOpcode opcode, CompletionStatus status, std::uint64_t context);

    // Sending.
    // Returns 0, or the errno for post(): making an error_code would cost a call each time.
    int check(std::span<const WorkRequest> chain) const noexcept;
    int check(const WorkRequest& request) const noexcept;
    bool done_at_once(const WorkRequest& request) noexcept;
    static void bind(const WorkRequest& request) noexcept;
    void submit(const WorkRequest& request);
    std::uint32_t post_read(const WorkRequest& request);
    void start_send();
    void send_early();
    bool receives_in_bulk() const noexcept;
    bool answers_bulk() const noexcept;
    bool sending() const noexcept {
        return send_operation_.in_flight || zero_copy_sending_ != nullptr;
    }
    void on_sent(const Operation::Result& result);
    static void on_zero_copy(Operation& operation, const Operation::Result& result);
    void zero_copy_told(const ZeroCopySends::Send& send, const Operation::Result& result);
    void on_zero_copy_sent(const Operation::Result& result);
    void release_zero_copies() noexcept;
    void give_up_zero_copies() noexcept;
    void reset_at_close(bool wanted) noexcept;
    void let_go_of_held() noexcept;
    void end_zero_copies() noexcept;
    void complete_works();
    void release_answers(std::uint64_t position) noexcept;

    // Receiving.
    void arm_receive();
    bool receives_on() const noexcept;
    void learn_from(const Operation::Result& result) noexcept;
    std::uint32_t receive_bytes_max() const noexcept;
    bool look_for_peer() const noexcept;
    void receive_direct();
    void on_stream(const Operation::Result& result);
    void on_direct(const Operation::Result& result);
    void stream_ended(std::int32_t result);
    void feed(Bytes bytes);
    Bytes take_header(Bytes bytes);
    Bytes take_payload(Bytes bytes);
    void begin_frame();
    std::byte* find_target(const FrameHeader& header);
    std::byte* find_receive(const FrameHeader& header);
    std::byte* find_read(const FrameHeader& header);
    bool writes_remotely() const noexcept;
    void payload_arrived(std::size_t bytes) noexcept;
    void finish_frame();
    void empty_write(std::uint32_t before);
    void deliver_receive(CompletionOpcode opcode);
    void invalidate_and_deliver();
    void answer_read();
    void finish_read();

    Reactor& reactor_;
    TcpDomain& domain_;
    EndpointHandler& handler_;
    Tracer* tracer_;  // may be null
    Duration silence_max_;
    EndpointOptions::Packets packets_;
    State state_ = State::idle;
    bool told_ = false;  // on_rejected or on_disconnected was delivered
    bool rejected_ = false;
    bool send_broken_ = false;
    bool lingers_ = false;
    int fd_ = -1;
    std::error_code reason_;
    std::error_code farewell_;  // what the peer is told if the owner ends it
    Agreement agreement_;
    std::unique_ptr<Dial> dial_;
    struct Lingering {
        explicit Lingering(TcpEndpoint& endpoint);
        LastBytes last_bytes;
        Timer look;
    };
    std::unique_ptr<Lingering> lingering_;  // null: it never lingered
    MemberTask<&TcpEndpoint::end_of_turn> turn_task_{*this};

    SendQueue sends_;
    ReservedMemory read_memory_;
    MemberOperation<&TcpEndpoint::on_sent> send_operation_{*this};
    std::unique_ptr<ZeroCopySends> zero_copies_;  // null: not wanted
    std::optional<Timer> let_go_;                 // set with zero_copies_
    Operation* zero_copy_sending_ = nullptr;      // the one of zero_copies_ that is not sent yet
    Fifo<Read, reads_max> reads_{read_memory_.cut<Read>(reads_max)};
    std::uint32_t next_read_id_ = 0;
    Fifo<Answer, answers_max> answers_{read_memory_.cut<Answer>(answers_max)};

    ReceiveQueue receives_;
    CompletionStatus first_receive_status_ = CompletionStatus::flushed;
    MemberOperation<&TcpEndpoint::on_stream> stream_operation_{*this};
    MemberOperation<&TcpEndpoint::on_direct> direct_operation_{*this};
    bool accepted_ = false;  // not dialled: what is sent are answers
    bool socket_nonempty_ = false;
    std::uint8_t large_expected_ = 0;        // for how many frames large payloads stay likely
    std::uint32_t usual_payload_bytes_ = 0;  // the longest lately; decreases with each frame
    // Whether the peer runs on another processor than we do, and is to begin early. Found out anew
    // every few receives.
    bool peer_elsewhere_ = false;
    std::uint32_t receives_made_ = 0;
    std::uint32_t whole_receives_ = 0;  // in a row
    std::uint32_t full_parts_ = 0;      // in a row: receives that left bytes in the socket
    std::uint32_t direct_slot_ = 0;     // key slot of the direct receive; 0: none
    std::uint32_t direct_bytes_ = 0;

    // The frame being received.
    std::array<std::byte, header_bytes> partial_header_{};
    std::size_t partial_header_bytes_ = 0;
    bool in_payload_ = false;
    FrameHeader frame_;
    std::byte* target_ = nullptr;
    std::uint32_t payload_left_ = 0;
    std::uint32_t empty_writes_ = 0;  // in a row before this frame
    Crc32c payload_crc_;
    std::array<std::byte, read_request_bytes> read_request_{};

    std::uint32_t revokes_pending_ = 0;
    std::uint32_t revokes_to_tell_ = 0;  // that have taken effect
};

}  // namespace rtrs::tcp
