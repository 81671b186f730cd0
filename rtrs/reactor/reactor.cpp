// Reactor: the loop. What a turn does with what has come.

#include <sys/eventfd.h>
#include <sys/utsname.h>
#include <time.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/reactor/reactor_inside.h"

namespace rtrs {
namespace {

constexpr std::uint32_t fixed_slots_max = 16384;
// Of Linux 6.2 (linux/io_uring.h), in the value of a notification; older headers do not have it.
constexpr std::uint32_t notif_usage_zc_copied = 1u << 31;
// Between two turns there was nothing to do.
constexpr Duration rest_after = std::chrono::milliseconds(500);
// Between two turns that hear several busy streams are those that serve them.
constexpr std::uint32_t several_heard_turns = 16;

// Later by at most a 64th of its delay: the heartbeats of many sessions go off together then, in
// one turn and one submission, instead of each waking the loop by itself.
Instant rounded(Instant deadline, Instant now) noexcept {
    constexpr int parts = 64;
    constexpr Duration delay_max = std::chrono::hours(24 * 365);
    const Duration delay = deadline - now;
    if (delay < Duration(parts) || delay > delay_max) return deadline;
    const auto slack = std::bit_floor(static_cast<std::uint64_t>(delay.count() / parts));
    const auto since_epoch = static_cast<std::uint64_t>(deadline.time_since_epoch().count());
    return Instant(Duration((since_epoch + slack - 1) / slack * slack));
}

// Or newer.
bool runs_on_linux_6(int least_release) noexcept {
    utsname kernel{};
    int version = 0;
    int release = 0;
    if (::uname(&kernel) != 0 || std::sscanf(kernel.release, "%d.%d", &version, &release) != 2) {
        return false;
    }
    return version > 6 || (version == 6 && release >= least_release);
}

// Before Linux 6.4 a ring keeps a file for up to a second after it was unregistered, and a device
// stays claimed for so long: longer than a server's restart takes.
bool lets_go_of_files_at_once() noexcept { return runs_on_linux_6(4); }

// An older kernel (6.1) looks for a buffer for more even when a multishot receive has taken all
// there was, and ends it if there is none.
bool multishot_waits() noexcept { return runs_on_linux_6(6); }

// Of a registered eventfd; see Reactor::Inside::renew_notice().
bool signals_get_lost() noexcept { return runs_on_linux_6(11); }

}  // namespace

Instant Reactor::Inside::read_clock() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return Instant(std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec));
}

Reactor::Inside::Inside(const Options& chosen)
    : options(chosen),
      fixed_buffers(ring.raw(), chosen.fixed_buffers),
      fixed_files(ring.raw(), lets_go_of_files_at_once() ? chosen.fixed_files : 0),
      helper([this](std::function<void()> done) { mailbox.post(std::move(done)); }),
      multishot_waits(rtrs::multishot_waits()),
      signals_get_lost(rtrs::signals_get_lost()),
      now(read_clock()) {}

Reactor::Inside::~Inside() {
    RTRS_ASSERT(!in_turn);
    drain();
}

std::error_code Reactor::Inside::open() {
    if (options.fixed_buffers > fixed_slots_max || options.fixed_files > fixed_slots_max) {
        return from_errno(EINVAL);
    }
    std::error_code error = ring.open(options.submission_entries, Ring::Setup::tuned);
    if (error == std::errc::invalid_argument) {
        error = ring.open(options.submission_entries, Ring::Setup::plain);
    }
    if (!error) error = mailbox.open();
    if (!error) {
        error =
            receive_buffers.open(ring.raw(), options.receive_buffers, options.receive_buffer_bytes);
    }
    if (error) return error;
    notice = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!notice) return from_errno(errno);
    listen_to_bell();
    return {};
}

void Reactor::Inside::listen_to_bell() {
    io_uring_prep_read(prepare(bell_read), mailbox.bell(), &bell_count, sizeof bell_count, 0);
}

void Reactor::Inside::on_bell() {
    listen_to_bell();
    mailbox.deliver();
}

void Reactor::Inside::Alarm::done(Operation& operation, const Result&) {
    static_cast<Alarm&>(operation).at.reset();
}

// liburing's prep functions leave user_data alone, so it is set here once for all of them.
io_uring_sqe* Reactor::Inside::prepare(Operation& operation) noexcept {
    operation.in_flight = true;
    operation.of_storage = false;
    operation.large_receive = false;
    ++outstanding;
    ++statistics.submissions;
    io_uring_sqe* entry = ring.next_entry();
    io_uring_sqe_set_data(entry, &operation);
    return entry;
}

io_uring_sqe* Reactor::Inside::prepare_polled(Operation& operation) noexcept {
    RTRS_ASSERT(!operation.in_flight);
    operation.in_flight = true;
    operation.of_storage = false;  // of what the first ring waits for
    operation.large_receive = false;
    ++outstanding;
    ++statistics.polled;
    io_uring_sqe* entry = polled.next_entry();
    io_uring_sqe_set_data(entry, &operation);
    return entry;
}

// For work whose outcome nobody waits for; a completion with no operation is dropped.
io_uring_sqe* Reactor::Inside::prepare_unanswered() noexcept {
    ++statistics.submissions;
    io_uring_sqe* entry = ring.next_entry();
    io_uring_sqe_set_data(entry, nullptr);
    return entry;
}

void Reactor::Inside::turn(Duration max_wait) {
    RTRS_ASSERT(!in_turn);
    receive_buffers.top_up();
    wait_for_news(max_wait);
    if (watched) forget_notice();
    now = read_clock();
    if (now - std::exchange(woke, now) >= rest_after) receive_buffers.rest();
    if (scheduling && !schedule_thread()) scheduling.reset();
    begin_turn();
    ++statistics.turns;
    reap();
    if (polled.in_flight() > 0) reap_polled();
    timers.expire(now);
    end_turn();
}

// False: it does not work here.
bool Reactor::Inside::schedule_thread() {
    auto& [batch, thread, is_batch] = *scheduling;
    if (is_batch) ++statistics.batch_turns;
    if (!batch.is_due(now)) return true;
    if (group != nullptr) return false;
    if (!thread && !thread.emplace().open()) return false;
    auto figures = thread->figures();
    if (!figures) return false;
    figures->requests = statistics.requests;
    batch.judge(now, *figures);
    if (batch.is_batch() == std::exchange(is_batch, batch.is_batch())) return true;
    return thread->use_batch(is_batch);
}

// As reap(): what the handlers cause waits for the next turn.
void Reactor::Inside::reap_polled() {
    for (std::uint32_t left = polled.in_flight(); left > 0 && polled.has_news(); --left) {
        const PolledRing::Ended ended = polled.take();
        ++statistics.completions;
        hand_out({reinterpret_cast<std::uintptr_t>(ended.data), ended.result, 0});
    }
}

// Only what is there now: what the handlers cause waits for the next turn, behind the timers.
void Reactor::Inside::reap() {
    io_uring* raw = ring.raw();
    for (unsigned ready = io_uring_cq_ready(raw); ready > 0; --ready) {
        const io_uring_cqe& entry = raw->cq.cqes[*raw->cq.khead & raw->cq.ring_mask];
        const Reaped reaped{entry.user_data, entry.res, entry.flags};
        io_uring_cq_advance(raw, 1);
        if (reaped.user_data != 0) ++statistics.completions;
        hand_out(reaped);
    }
}

void Reactor::Inside::hand_out(const Reaped& reaped) {
    if (reaped.user_data == 0) return;
    auto& operation = *reinterpret_cast<Operation*>(static_cast<std::uintptr_t>(reaped.user_data));
    Operation::Result result{.value = reaped.value,
                             .more = (reaped.flags & IORING_CQE_F_MORE) != 0,
                             .socket_nonempty = (reaped.flags & IORING_CQE_F_SOCK_NONEMPTY) != 0};
    if ((reaped.flags & IORING_CQE_F_BUFFER) != 0) {
        const auto buffer = static_cast<std::uint16_t>(reaped.flags >> IORING_CQE_BUFFER_SHIFT);
        receive_buffers.taken();
        ++streams_heard;
        if (reaped.value > 0) {
            result.buffer = buffer;
        } else {  // end of stream or an error on the kernel's slow path: nothing to hand over
            receive_buffers.give_back(buffer);
        }
    } else if (reaped.value == -ENOBUFS) {
        receive_buffers.ran_out();
    }
    if ((reaped.flags & IORING_CQE_F_NOTIF) != 0) {
        result.copied = (static_cast<std::uint32_t>(reaped.value) & notif_usage_zc_copied) != 0;
        result.value = 0;
        if (result.copied) ++statistics.zero_copies_copied;
    }
    if (!result.more) {
        operation.in_flight = false;
        --outstanding;
        if (operation.of_storage) --storage_operations;
        if (operation.large_receive) large_receive_at = now;
        if (!to_cancel.empty()) {
            std::erase_if(to_cancel,
                          [&](const ToCancel& one) { return one.operation == &operation; });
        }
    }
    operation.completed(operation, result);
}

void Reactor::Inside::begin_turn() noexcept {
    in_turn = true;
    if (std::exchange(streams_heard, 0) > 1) {
        several_heard = several_heard_turns;
    } else if (several_heard > 0) {
        --several_heard;
    }
    // The baton is not given away inside a turn.
    may_call = prompt_sends && group == nullptr;
}

// No more than one send was called, so that this is not for ever.
void Reactor::Inside::end_turn() {
    run_turn_end();
    may_call = false;
    if (Operation* sent = std::exchange(called_now, nullptr)) {
        hand_out({reinterpret_cast<std::uintptr_t>(sent), call_result, 0});
        run_turn_end();
    }
    in_turn = false;
}

void Reactor::Inside::run_turn_end() {
    while (!turn_end.empty()) {
        TurnTask& task = turn_end.pop_front();
        task.run(task);
    }
}

// Ends what is in flight so that the kernel lets go of all memory. Handlers are not called: their
// owners are gone by now. Cancelling is repeated because an operation that is just being retried
// by the kernel is missed.
void Reactor::Inside::drain() {
    if (!ring.owned_by_this_thread()) return;
    constexpr Duration again = std::chrono::milliseconds(100);
    constexpr Duration look_again = std::chrono::milliseconds(1);
    outstanding -= polled.forget_prepared();
    while (outstanding > 0) {
        // What was begun there cannot be cancelled; the device ends it.
        const bool polls = polled.in_flight() > 0;
        if (polls) {
            polled.look();
            for (; polled.has_news(); polled.take()) --outstanding;
        }
        io_uring_prep_cancel64(prepare_unanswered(), 0,
                               IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
        ring.submit_and_wait(polls ? look_again : again, Ring::WaitsAs::iowait);
        discard_completions();
    }
}

void Reactor::Inside::discard_completions() noexcept {
    io_uring* raw = ring.raw();
    for (unsigned ready = io_uring_cq_ready(raw); ready > 0; --ready) {
        const io_uring_cqe& entry = raw->cq.cqes[*raw->cq.khead & raw->cq.ring_mask];
        if (entry.user_data != 0 && (entry.flags & IORING_CQE_F_MORE) == 0) --outstanding;
        io_uring_cq_advance(raw, 1);
    }
}

Reactor::Reactor(std::unique_ptr<Inside> inside) noexcept : inside_(std::move(inside)) {}
Reactor::~Reactor() = default;

std::expected<std::unique_ptr<Reactor>, std::error_code> Reactor::create(const Options& options) {
    auto inside = std::make_unique<Inside>(options);
    if (const std::error_code error = inside->open()) return std::unexpected(error);
    return std::unique_ptr<Reactor>(new Reactor(std::move(inside)));
}

std::expected<std::unique_ptr<Reactor>, std::error_code> Reactor::create() {
    return create(Options{});
}

void Reactor::set_busy_poll(Duration window, InFlight requests) {
    inside_->polls_for = requests;
    inside_->busy_poll.reset();
    if (window > Duration::zero() && inside_->ring.tells_news()) {
        inside_->busy_poll.emplace(window, Inside::read_clock());
    }
}

Instant Reactor::now() const noexcept {
    const Inside& at = inside_->group == nullptr ? *inside_ : *reactor_of_this_thread->inside_;
    return at.in_turn ? at.now : Inside::read_clock();
}

void Reactor::set_batch_scheduling(bool on) noexcept {
    inside_->scheduling.reset();
    if (on) inside_->scheduling.emplace();
}

void Reactor::begin_request() noexcept {
    ++inside_->statistics.requests;
    ++inside_->requests_in_flight;
}

void Reactor::end_request() noexcept {
    RTRS_ASSERT(inside_->requests_in_flight > 0);
    --inside_->requests_in_flight;
}

void Reactor::set_prompt_sends(bool on) noexcept { inside_->prompt_sends = on; }

bool Reactor::prompt_sends() const noexcept { return inside_->prompt_sends; }

std::error_code Reactor::prepare_polling() {
    RTRS_ASSERT(!inside_->watched);
    return inside_->polled.open(inside_->options.submission_entries);
}

bool Reactor::polls_storage() const noexcept {
    return inside_->polled.is_open() && inside_->group == nullptr;
}

void Reactor::set_prompt_storage(bool on) noexcept { inside_->prompt_storage = on; }

bool Reactor::prompt_storage() const noexcept {
    return inside_->prompt_storage && inside_->group == nullptr;
}

bool Reactor::keeps_receives() const noexcept { return inside_->multishot_waits; }

bool Reactor::polls_busily() const noexcept { return inside_->busy_poll.has_value(); }

void Reactor::add_lookout(Lookout& lookout) noexcept { inside_->lookouts.push_back(lookout); }

void Reactor::remove_lookout(Lookout& lookout) noexcept {
    if (lookout.linked()) IntrusiveList<Lookout>::remove(lookout);
}

void Reactor::run() {
    const Ring::FastDescriptor fast(inside_->ring);
    inside_->now = Inside::read_clock();
    do {
        inside_->turn(Ring::for_ever);
    } while (!inside_->stopping.load(std::memory_order_acquire));
    inside_->stopping.store(false, std::memory_order_relaxed);
    // What the last turn prepared.
    if (inside_->watched) {
        inside_->announce_deadline();
    } else {
        inside_->ring.submit();
    }
    if (inside_->polled.prepared() > 0) inside_->polled.look();
}

void Reactor::run_turn_end() {
    RTRS_ASSERT(!inside_->in_turn);
    if (inside_->turn_end.empty()) return;
    inside_->now = Inside::read_clock();
    inside_->begin_turn();
    inside_->end_turn();
}

void Reactor::run_once(std::optional<Duration> max_wait) {
    if (!inside_->turn_end.empty()) {
        run_turn_end();
        max_wait = Duration::zero();
    } else {
        inside_->now = Inside::read_clock();
    }
    inside_->turn(max_wait.value_or(Ring::for_ever));
    if (inside_->watched) inside_->announce_deadline();
}

void Reactor::stop() {
    inside_->stopping.store(true, std::memory_order_release);
    inside_->mailbox.ring_bell();
}

void Reactor::post(std::function<void()> function) { inside_->mailbox.post(std::move(function)); }

int Reactor::fd() const noexcept { return inside_->watch(); }

void Reactor::at_turn_end(TurnTask& task) noexcept {
    if (task.linked()) return;
    inside_->turn_end.push_back(task);
    if (inside_->elsewhere()) inside_->mailbox.ring_bell();
}

void Reactor::cancel_turn_end(TurnTask& task) noexcept {
    if (task.linked()) IntrusiveList<TurnTask>::remove(task);
}

bool Reactor::offload(std::function<void()> work, std::function<void()> done) {
    return inside_->helper.run(std::move(work), std::move(done));
}

const Reactor::Statistics& Reactor::statistics() const noexcept { return inside_->statistics; }

void Reactor::arm(Timer& timer, Instant deadline) {
    const Instant at = rounded(deadline, now());
    inside_->timers.arm(timer, at);
    if (inside_->elsewhere() && at < inside_->waits_until) inside_->mailbox.ring_bell();
}
void Reactor::disarm(Timer& timer) noexcept { inside_->timers.disarm(timer); }

}  // namespace rtrs
