#include "rnbd-client/nbd/connection.h"

#include <poll.h>

#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/log_rate_limit.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

using rtrs::Reactor;
using rtrs::TraceLevel;

constexpr std::string_view subsystem = "rnbd.nbd";

// Between looks whether the server has spoken.
constexpr rtrs::Duration settle_poll = std::chrono::milliseconds(5);

}  // namespace

NbdConnection::NbdConnection(Environment environment, Socket socket, const NbdExports& exports,
                             const NbdConnectionOptions& options, Owner& owner)
    : DeviceClient(Kind::nbd),
      reactor_(environment.reactor),
      tracer_(environment.tracer),
      socket_(std::move(socket)),
      exports_(exports),
      options_(options),
      owner_(owner),
      waiter_(*this,
              [](rtrs::PermitWaiter& waiter) {
                  // Permits come from the middle of someone's release(): go on when that is over.
                  auto& connection = static_cast<Waiter&>(waiter).connection;
                  connection.resume_wanted_ = true;
                  connection.at_turn_end();
              }),
      share_claim_(*this,
                   [](PermitShares::Claim& claim) {
                       auto& connection = static_cast<ShareClaim&>(claim).connection;
                       connection.resume_wanted_ = true;
                       connection.at_turn_end();
                   }),
      watchdog_(reactor_, this, rtrs::member_call<&NbdConnection::on_deadline>),
      greeter_(reactor_, this, rtrs::member_call<&NbdConnection::greet_when_settled>) {}

NbdConnection::~NbdConnection() {
    RTRS_ASSERT(!started_ || ended_);
    Reactor::cancel_turn_end(turn_end_);
}

void NbdConnection::start() {
    started_ = true;
    handshake_ = std::make_unique<nbd::Handshake>(exports_);
    nbd::Handshake::greet(handshake_replies_);
    block(Blocked::handshake_reply);
    greet_when_settled();
}

void NbdConnection::start_chosen(std::size_t export_index) {
    started_ = true;
    client_kind = Kind::kernel;
    const nbd::ExportDescription description = exports_.describe(export_index);
    begin_transmission({.export_index = export_index,
                        .size_bytes = description.size_bytes,
                        .transmission_flags = description.transmission_flags});
    want_input();
}

void NbdConnection::greet_when_settled() {
    if (phase_ != Phase::handshake) return;
    if (!exports_.settled(reactor_.now(), options_.settle_timeout)) {
        greeter_.arm(reactor_.now() + settle_poll);
        return;
    }
    receive_deadline_ = reactor_.now() + options_.handshake_timeout;
    watch(*receive_deadline_);
    send_handshake_replies();
}

// Not before: whoever only connects must cost little.
bool NbdConnection::prepare() {
    slots_ = rtrs::LazyArray<Slot>(options_.requests_max);
    if (slots_ && prepare_sending()) return true;
    abort("out of address space");
    return false;
}

void NbdConnection::begin_transmission(const nbd::Negotiated& chosen) {
    if (!prepare()) return;
    device_ = &exports_.device(chosen.export_index);
    const nbd::ExportDescription description = device_->describe();
    session_.size_bytes = chosen.size_bytes;
    session_.block_bytes_min = description.block_sizes.minimum_bytes;
    session_.payload_bytes_max = description.block_sizes.maximum_bytes;
    session_.transmission_flags = chosen.transmission_flags;
    session_.structured_replies = chosen.structured_replies;
    session_.allocation_context = chosen.allocation_context;
    granted_.resize(device_->request_permits_max());
    receive_deadline_.reset();
    expect_ = Expect::request;
    block_bytes = session_.block_bytes_min;
    device_->join(*this);
    set_phase(Phase::transmission,
              session_.structured_replies ? "connected, structured replies" : "connected",
              TraceLevel::info);
}

void NbdConnection::at_turn_end() { reactor_.at_turn_end(turn_end_); }

void NbdConnection::end_of_turn() {
    if (std::exchange(resume_wanted_, false)) resume();
    flush();
    end_if_idle();
    // The last thing done here: the owner may destroy the connection.
    if (ended_) owner_.on_connection_closed(*this);
}

// The request that the stream stands at will not be run.
void NbdConnection::drop_unstarted() noexcept {
    // The kernel may still write to its permits.
    if (receiving_ == Receiving::direct) return;
    if (blocked_ == Blocked::permits) {
        // They may have been granted already.
        if (waiter_.linked()) device_->permits().stop_waiting(waiter_);
        for (rtrs::Permit& permit : granted_) permit = rtrs::Permit();
        give_back_share(*receiving_slot_);
    }
    if (blocked_ == Blocked::own_share) {
        if (share_claim_.linked()) {
            device_->shares().forget(device_->share(), share_claim_);
        } else {
            give_back_share(*receiving_slot_);
        }
    }
    blocked_ = Blocked::no;
    if (receiving_slot_ != nullptr) recycle(*std::exchange(receiving_slot_, nullptr));
}

void NbdConnection::set_phase(Phase phase, std::string_view why, TraceLevel level) {
    phase_ = phase;
    tracer_.trace(level, subsystem, socket_.name, why);
    if (reading()) return;
    drop_unstarted();
    leave_device();
    receive_deadline_.reset();
    if (receiving_ != Receiving::nothing) reactor_.cancel(receive_);
    at_turn_end();
}

// Whatever is done of the requests from now on, the client may ask for the same elsewhere.
void NbdConnection::leave_device() noexcept {
    if (!linked()) return;
    const std::uint32_t before = device_->left_behind().requests;
    for (std::uint32_t i = 0; i < slots_touched_; ++i) {
        if (slots_[i].attached) device_->leave_behind(slots_[i]);
    }
    const std::uint32_t left = device_->left_behind().requests - before;
    if (left > 0) {
        tracer_.trace(TraceLevel::info, subsystem, socket_.name,
                      "leaves " + std::to_string(left) + (left == 1 ? " change" : " changes") +
                          " in progress behind: what overlaps them waits");
    }
    device_->shares().left(device_->share(), share_);
    device_->leave(*this);
}

// The client may know only that its request was wrong, if that.
void NbdConnection::tell_of_the_maximum() {
    if (std::exchange(told_of_the_maximum_, true)) return;
    tracer_.trace(TraceLevel::warning, subsystem, socket_.name,
                  "refused a request of " + std::to_string(request_.length) +
                      " bytes: its maximum block size is " +
                      std::to_string(session_.payload_bytes_max) +
                      ", by the server's queue_depth and max_io_size, and never more than 32 MiB");
}

bool NbdConnection::leaving() noexcept {
    pollfd state{.fd = socket_.fd, .events = POLLRDHUP, .revents = 0};
    return ::poll(&state, 1, 0) > 0;
}

void NbdConnection::on_other_left() {
    if (blocked_ != Blocked::others) return;
    resume_wanted_ = true;
    at_turn_end();
}

void NbdConnection::add_stalls(std::vector<DeviceStall>& to) const {
    using Stage = DeviceStall::Stage;
    const auto add = [&](Stage stage, const nbd::Request& request, rtrs::Instant since,
                         std::optional<rtrs::Instant> until = {}) {
        to.push_back({stage, request.command, request.offset, request.length, since, until});
    };
    switch (blocked_) {
        case Blocked::others:
            add(Stage::left_behind, request_, blocked_since_);
            break;
        case Blocked::place:
            add(Stage::own_share, request_, blocked_since_);
            break;
        case Blocked::own_share:
            add(share_.held > 0 ? Stage::own_share : Stage::permit, receiving_slot_->nbd,
                receiving_slot_->received);
            break;
        case Blocked::permits:
            add(Stage::permit, receiving_slot_->nbd, receiving_slot_->received);
            break;
        case Blocked::no:
        case Blocked::handshake_reply:
            if (expect_ == Expect::payload && receiving_slot_ != nullptr) {
                add(Stage::payload, receiving_slot_->nbd, receiving_slot_->received,
                    payload_stalls_ ? payload_stalls_ : receive_deadline_);
            }
            break;
    }
    for (std::uint32_t i = 0; i < slots_touched_; ++i) {
        const Slot& slot = slots_[i];
        if (slot.attached && slot.started && slot.in_flight == 0) {
            add(Stage::left_behind, slot.nbd, slot.received);
        }
    }
    for (const SlotQueue* queue : {&batch_, &ready_}) {
        for (const Slot* slot = queue->first; slot != nullptr; slot = slot->next) {
            add(Stage::answered, slot->nbd, slot->received,
                answers_stall_ ? answers_stall_ : send_deadline_);
        }
    }
}

void NbdConnection::finish() {
    if (phase_ == Phase::handshake) return abort("shutting down");
    if (phase_ == Phase::transmission) {
        ends_first_ = true;
        set_phase(Phase::finishing, "shutting down", TraceLevel::info);
    }
}

void NbdConnection::abort(std::string_view why) {
    if (phase_ == Phase::broken || ended_) return;
    if (phase_ == Phase::handshake) {
        const auto times = owner_.handshake_failed();
        set_phase(Phase::broken, std::string(why) + rtrs::how_often(times.value_or(1)),
                  times ? TraceLevel::warning : TraceLevel::debug);
    } else {
        const bool expected = phase_ == Phase::finishing || phase_ == Phase::parting;
        set_phase(Phase::broken, why, expected ? TraceLevel::debug : TraceLevel::warning);
    }
    // Wakes what waits on the socket; the answers that nobody gets are dropped.
    ::shutdown(socket_.fd, SHUT_RDWR);
    if (sending_) reactor_.cancel(send_);
    while (Slot* const slot = ready_.pop()) recycle(*slot);
}

void NbdConnection::end_if_idle() {
    if (reading() || ended_) return;
    if (receiving_ != Receiving::nothing || sending_ || outstanding_ > 0) return;
    if (phase_ != Phase::broken && parts_from_client()) return;
    ended_ = true;
    watchdog_.disarm();
    greeter_.disarm();
    reactor_.close_fd(std::exchange(socket_.fd, -1));
    at_turn_end();
}

bool NbdConnection::parts_from_client() {
    if (!ends_first_ || socket_.transport != NbdTransport::tcp) return false;
    if (phase_ != Phase::parting) {
        phase_ = Phase::parting;
        ::shutdown(socket_.fd, SHUT_WR);
        last_bytes_.emplace(socket_.fd, reactor_.now());
        receive_deadline_ = reactor_.now() + rtrs::LastBytes::interval;
        watch(*receive_deadline_);
    }
    receiving_ = Receiving::provided;
    reactor_.recv_provided(receive_, socket_.fd, 0, Reactor::FirstTry::after_poll);
    return true;
}

void NbdConnection::look_at_last_bytes() {
    if (!last_bytes_->goes_on(reactor_.now())) return abort("does not end");
    receive_deadline_ = reactor_.now() + rtrs::LastBytes::interval;
    watch(*receive_deadline_);
}

void NbdConnection::watch(rtrs::Instant deadline) {
    // Deadlines that are met leave the timer alone: it looks again when it fires.
    if (!watchdog_.armed() || watchdog_.deadline() > deadline) watchdog_.arm(deadline);
}

bool NbdConnection::permits_are_short() const {
    // Nor does anybody get one while somebody waits.
    return PermitShares::others_wait_for(device_->share(), share_) ||
           !device_->permits().try_take();
}

// The kernel's driver has no other reason to stand still than what its own machine lacks.
bool NbdConnection::keeps_others_waiting(rtrs::Instant now) {
    const bool stands_still =
        (payload_stalls_ && *payload_stalls_ <= now) || (answers_stall_ && *answers_stall_ <= now);
    return stands_still && phase_ == Phase::transmission && client_kind == Kind::nbd &&
           share_.held > 0 && permits_are_short();
}

// What has come of a large piece, or gone of answers, is known when the kernel ends it. False:
// there is nothing more to know.
bool NbdConnection::looks(Stalled what) {
    if (what == Stalled::payload && receiving_ != Receiving::direct) return false;
    bool& looked_at = what == Stalled::payload ? looked_at_ : send_looked_at_;
    if (std::exchange(looked_at, true)) return false;
    rtrs::Operation& work =
        what == Stalled::payload ? static_cast<rtrs::Operation&>(receive_) : send_;
    reactor_.cancel(work);
    return true;
}

void NbdConnection::on_deadline() {
    const rtrs::Instant now = reactor_.now();
    const bool receive_late = receive_deadline_ && *receive_deadline_ <= now;
    const bool send_late = send_deadline_ && *send_deadline_ <= now;
    if (receive_late && phase_ == Phase::parting) return look_at_last_bytes();
    if (receive_late && blocked_ == Blocked::others) {
        // Each of them that has left tells, and this one looks again.
        receive_deadline_ = now + options_.payload_timeout;
        watch_deadlines(now);
        return device_->end_leaving(*this);
    }
    if (keeps_others_waiting(now)) {
        const bool payload = payload_stalls_ && *payload_stalls_ <= now;
        // It may have ended well meanwhile: whatever else has a deadline keeps it.
        if (looks(payload ? Stalled::payload : Stalled::answers)) return watch_deadlines(now);
        return abort(payload ? "a request does not arrive, and others wait for its permits"
                             : "answers are not taken, and others wait for their permits");
    }
    const bool may_stay =
        phase_ == Phase::transmission && (receive_late || send_late) && !permits_are_short();
    if (receive_late && !may_stay) {
        return abort(phase_ == Phase::handshake ? "handshake took too long"
                                                : "a request did not arrive in time");
    }
    if (send_late && !may_stay) return abort("answers were not taken in time");
    if (receive_late) receive_deadline_ = now + options_.payload_timeout;
    if (send_late) send_deadline_ = now + options_.send_timeout;
    watch_deadlines(now);
}

void NbdConnection::watch_deadlines(rtrs::Instant now) {
    const rtrs::Instant next_look = now + options_.stall_timeout / stall_looks;
    for (auto* stall : {&payload_stalls_, &answers_stall_}) {
        if (*stall && **stall <= now) *stall = next_look;
    }
    for (const auto& deadline :
         {receive_deadline_, send_deadline_, payload_stalls_, answers_stall_}) {
        if (deadline) watch(*deadline);
    }
}

}  // namespace rnbd
