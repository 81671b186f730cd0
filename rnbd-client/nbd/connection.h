// One NBD client: turns the bytes of its socket into requests on a device, and sends the answers.
//
// Receiving: one receive can bring many requests, in buffers that all connections of the reactor
// share. The payload of small WRITEs is copied from there to their permits; a large rest is
// received directly into the permits. While a request waits (for permits, or for one of
// requests_max places), nothing more is read from this socket. This is the back-pressure; the
// shared buffer is given back meanwhile.
//
// Sending: the answers of a turn are sent with one sendmsg at its end. Data is sent directly from
// the permits, which are given back when the sendmsg has completed. Nothing is allocated per
// request.
//
// | Phase        | On                               | Goes to      | Does                         |
// | ------------ | -------------------------------- | ------------ | ---------------------------- |
// | handshake    | GO, EXPORT_NAME                  | transmission | bind to the device           |
// | handshake    | ABORT, end of stream             | finishing    |                              |
// | transmission | DISC, end of stream, finish()    | finishing    | answers what was received    |
// | handshake    | finish()                         | broken       |                              |
// | the above,   | protocol error, a deadline, send | broken       | shut the socket down, drop   |
// | finishing    | failed, abort()                  |              | answers; I/O runs to its end |
// | finishing by | no request, receive or send left | parting      | says the end, drops what     |
// | finish(), TCP|                                  |              | still comes                  |
// | parting      | end of stream                    | (closed)     | close, tell the owner        |
// | parting      | its time is over                 | broken       |                              |
// | finishing,   | no request, receive or send left | (closed)     | close, tell the owner        |
// | broken       |                                  |              |                              |
//
// Parting: see rtrs/base/last_bytes.h.
//
// A client that stands still in a request, or does not take its answers, may have been stopped and
// may go on some day. So its deadlines apply only while others want its permits. In that case
// stall_timeout applies, too: a client that keeps others waiting must make some progress.
//
// A client that leaves while requests are in progress leaves them behind (device.h). A client that
// comes back often arrives before the end of its old connection was read. So the first request of
// each connection waits until the other connections on the device whose peers have hung up were
// read to their ends. If one of these has not come to its end payload_timeout after that first
// request, it is cut off; mostly its peer does not take its answers, or takes them slowly.
//
// OWNER: an NbdListener, or a KernelDevice. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rnbd-client/device.h"
#include "rnbd-client/nbd/address.h"
#include "rnbd-client/nbd/handshake.h"
#include "rnbd-client/nbd/transmission.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/last_bytes.h"
#include "rtrs/base/lazy_array.h"
#include "rtrs/reactor.h"
#include "rtrs/trace.h"

namespace rnbd {

// The devices that one socket serves.
class NbdExports final : public nbd::ExportTable {
  public:
    NbdExports() = default;
    explicit NbdExports(std::vector<Device*> devices) : devices_(std::move(devices)) {}
    // These take effect for clients that negotiate from now on. Connections on a device that is
    // removed go on; the caller ends them.
    void add(Device& device) { devices_.push_back(&device); }
    void remove(const Device& device) { std::erase(devices_, &device); }
    bool serves(const Device& device) const noexcept {
        return std::ranges::find(devices_, &device) != devices_.end();
    }
    Device& device(std::size_t index) const noexcept { return *devices_[index]; }
    // Of each device the server has said a word, or has had that long to do so.
    bool settled(rtrs::Instant now, rtrs::Duration timeout) const noexcept {
        return std::ranges::all_of(devices_, [&](Device* device) {
            return device->settled() || now >= device->volume().since() + timeout;
        });
    }
    std::size_t count() const noexcept override { return devices_.size(); }
    std::string_view name(std::size_t index) const noexcept override {
        return devices_[index]->name();
    }
    nbd::ExportDescription describe(std::size_t index) const noexcept override {
        return devices_[index]->describe();
    }

  private:
    std::vector<Device*> devices_;
};

struct NbdConnectionOptions {
    // How long a client is kept waiting for its greeting, counted from when a device was mapped, if
    // the server has not yet said whether that device may be opened.
    rtrs::Duration settle_timeout = std::chrono::seconds(3);
    rtrs::Duration handshake_timeout = std::chrono::seconds(30);  // for the whole handshake
    rtrs::Duration payload_timeout = std::chrono::seconds(30);    // a request, first byte to last
    rtrs::Duration send_timeout = std::chrono::seconds(60);       // one batch of answers
    // How long a client may send nothing of a WRITE's data, or take nothing of an answer.
    rtrs::Duration stall_timeout = std::chrono::seconds(10);
    std::uint32_t requests_max = 1024;  // outstanding, 1..65536
};

class NbdConnection final : private DeviceClient {
  public:
    class Owner {
      public:
        // Nothing is in flight any more; the connection may be destroyed from inside this call.
        virtual void on_connection_closed(NbdConnection& connection) = 0;
        // A handshake has failed. Returns for how many failures a line is to be logged now; none:
        // no line.
        virtual std::optional<std::uint64_t> handshake_failed() noexcept { return 1; }

      protected:
        ~Owner() = default;
    };
    struct Environment {
        rtrs::Reactor& reactor;
        rtrs::Tracer& tracer;
    };
    struct Socket {
        int fd = -1;  // connected, in blocking mode; owned from here on
        NbdTransport transport = NbdTransport::unix_socket;
        std::string name;  // printable; says whose socket it is
    };

    // exports, owner: outlive this.
    NbdConnection(Environment environment, Socket socket, const NbdExports& exports,
                  const NbdConnectionOptions& options, Owner& owner);
    ~NbdConnection();  // ASSUMES: never started, or on_connection_closed was delivered
    NbdConnection(const NbdConnection&) = delete;
    NbdConnection& operator=(const NbdConnection&) = delete;

    // Greets the client, and lets it choose an export.
    void start();
    // For a client that needs no handshake (the kernel): uses simple replies.
    // ASSUMES: the description of the export is available.
    void start_chosen(std::size_t export_index);
    // Requests that were received are done and answered, then the connection closes.
    void finish();
    // Closes without answering. why: one line for the log.
    void abort(std::string_view why);

    const std::string& name() const noexcept { return socket_.name; }
    // None before the client has chosen.
    const Device* device() const noexcept { return device_; }
    std::uint32_t requests_in_flight() const noexcept { return outstanding_; }
    // Since when the client has had its greeting; none: it has not, or has chosen.
    std::optional<rtrs::Instant> chooses_since() const noexcept {
        if (phase_ != Phase::handshake || !receive_deadline_) return std::nullopt;
        return *receive_deadline_ - options_.handshake_timeout;
    }

  private:
    enum class Phase : std::uint8_t { handshake, transmission, finishing, parting, broken };
    enum class Expect : std::uint8_t { handshake, request, payload, drain };
    // Why no more of the stream is parsed for the moment.
    enum class Blocked : std::uint8_t { no, handshake_reply, others, place, own_share, permits };
    enum class Receiving : std::uint8_t { nothing, provided, direct };
    enum class Stalled : std::uint8_t { payload, answers };

    // A request in progress. An object whose bytes are all zero is valid.
    struct Slot : DeviceRequest {
        NbdConnection* connection;
        Slot* next;
        nbd::NbdError refusal;
        bool attached;
        rtrs::Instant received;
        const char* text;
    };
    // First in, first out, through Slot::next.
    struct SlotQueue {
        Slot* first = nullptr;
        Slot* last = nullptr;
        void push(Slot& slot) noexcept;
        Slot* pop() noexcept;
    };
    struct Waiter : rtrs::PermitWaiter {
        Waiter(NbdConnection& c, Granted handler) : PermitWaiter(handler), connection(c) {}
        NbdConnection& connection;
    };
    struct ShareClaim : PermitShares::Claim {
        ShareClaim(NbdConnection& c, Granted handler)
            : PermitShares::Claim(c.share_, handler), connection(c) {}
        NbdConnection& connection;
    };

    bool leaving() noexcept override;
    void on_other_left() override;
    void end_leaving() override {
        abort("has hung up, and is not at its end while others wait for it");
    }
    void add_stalls(std::vector<DeviceStall>& to) const override;

    // Its life.
    void greet_when_settled();
    bool prepare();
    void begin_transmission(const nbd::Negotiated& chosen);

    // Receiving.
    bool reading() const noexcept { return phase_ <= Phase::transmission; }
    bool between_requests() const noexcept;
    void want_input();
    void on_received(const rtrs::Operation::Result& result);
    void on_provided(const rtrs::Operation::Result& result);
    void on_direct(std::int32_t result);
    void on_stream_end(std::int32_t result);
    void closed_in_handshake();
    std::size_t consume(nbd::Bytes input);
    void resume();
    void block(Blocked on) noexcept;

    // From bytes to requests.
    std::size_t take_handshake(nbd::Bytes input);
    std::size_t take_header(nbd::Bytes input);
    void take_request(const std::byte* bytes);
    std::size_t take_payload(nbd::Bytes input);
    std::size_t take_drained(nbd::Bytes input);
    rtrs::MutableBytes payload_target() const noexcept;
    void payload_arrived(std::size_t bytes);
    void admit();
    void tell_of_the_maximum();
    void refuse(Slot& slot, const nbd::Refusal& refusal);
    void acquire(Slot& slot);
    bool take_permits(const Slot& slot);
    bool may_wait() const noexcept;
    void refuse_at_once(Slot& slot);
    void give_back_share(const Slot& slot) noexcept;
    void begin(Slot& slot);

    // From requests to bytes.
    bool prepare_sending();
    void send_handshake_replies();
    void on_done(Slot& slot);
    void answer(Slot& slot);
    void flush();
    std::size_t emit_header(const Slot& slot, rtrs::MutableBytes to) const noexcept;
    void send(std::span<iovec> entries, std::size_t bytes);
    void set_send_deadlines();
    void on_sent(std::int32_t result);
    void skip_sent(std::size_t bytes) noexcept;
    void batch_sent();
    void batch_delivered();
    Slot* take_slot() noexcept;
    void recycle(Slot& slot) noexcept;

    void drop_unstarted() noexcept;
    void leave_device() noexcept;
    void at_turn_end();
    void end_of_turn();
    void end_if_idle();
    bool parts_from_client();
    void look_at_last_bytes();
    void watch(rtrs::Instant deadline);
    bool permits_are_short() const;
    bool keeps_others_waiting(rtrs::Instant now);
    bool looks(Stalled what);
    void on_deadline();
    void watch_deadlines(rtrs::Instant now);
    void set_phase(Phase phase, std::string_view why, rtrs::TraceLevel level);

    rtrs::Reactor& reactor_;
    rtrs::Tracer& tracer_;
    Socket socket_;
    const NbdExports& exports_;
    const NbdConnectionOptions options_;
    Owner& owner_;

    Phase phase_ = Phase::handshake;
    bool started_ = false;
    bool ended_ = false;
    bool ends_first_ = false;  // this side ends the stream before the client does
    bool came_late_ = true;    // others may have been there before, and may be leaving
    Device* device_ = nullptr;
    nbd::Session session_{};

    // Receiving.
    rtrs::MemberOperation<&NbdConnection::on_received> receive_{*this};
    Receiving receiving_ = Receiving::nothing;
    bool looked_at_ = false;  // receive_ was cancelled, to see whether anything has come by it
    rtrs::Reactor::FirstTry first_try_ = rtrs::Reactor::FirstTry::after_poll;
    Blocked blocked_ = Blocked::no;
    rtrs::Instant blocked_since_{};
    Expect expect_ = Expect::handshake;
    bool small_next_ = false;  // large WRITEs are coming: receive only their headers
    bool saw_large_ = false;
    bool resume_wanted_ = false;
    bool told_of_the_maximum_ = false;
    std::unique_ptr<nbd::Handshake> handshake_;
    std::vector<std::byte> stash_;  // unparsed input while blocked
    std::size_t stash_used_ = 0;
    std::array<std::byte, nbd::request_bytes> header_{};
    std::size_t header_fill_ = 0;
    nbd::Request request_{};
    Slot* receiving_slot_ = nullptr;  // the request whose permits or payload the stream waits for
    DevicePiece* payload_piece_ = nullptr;
    std::uint32_t payload_fill_ = 0;  // bytes that the piece has
    std::uint32_t payload_left_ = 0;  // bytes that the request still needs
    std::uint32_t drain_left_ = 0;

    // Requests.
    rtrs::LazyArray<Slot> slots_;
    std::uint32_t slots_touched_ = 0;
    Slot* free_slots_ = nullptr;
    std::uint32_t outstanding_ = 0;
    std::vector<rtrs::Permit> granted_;
    Waiter waiter_;
    PermitShares::Client share_;
    ShareClaim share_claim_;

    // Sending.
    rtrs::MemberOperation<&NbdConnection::on_sent> send_{*this};
    bool sending_ = false;
    SlotQueue ready_;
    SlotQueue batch_;
    rtrs::LazyMemory headers_;
    rtrs::LazyArray<iovec> entries_;
    std::size_t send_left_ = 0;
    std::vector<std::byte> handshake_replies_;
    iovec handshake_entry_{};
    msghdr message_{};

    std::optional<rtrs::Instant> receive_deadline_;
    std::optional<rtrs::Instant> send_deadline_;
    // A client that has stood still for stall_timeout is looked at again after this part of it.
    // Equally often it is checked whether a send goes on: what the socket takes at once is not
    // progress of the client.
    static constexpr int answer_looks = 2;
    static constexpr int stall_looks = 5;
    // Since when a client stands still.
    std::optional<rtrs::Instant> payload_stalls_;
    std::optional<rtrs::Instant> answers_stall_;
    bool send_looked_at_ = false;  // send_ was cancelled, as receive_ is for looked_at_
    // While the client was made to wait, it had time to put more data into its socket.
    bool had_time_to_send_ = false;
    std::optional<rtrs::LastBytes> last_bytes_;  // while parting
    rtrs::Timer watchdog_;
    rtrs::Timer greeter_;
    rtrs::MemberTask<&NbdConnection::end_of_turn> turn_end_{*this};
};

}  // namespace rnbd
