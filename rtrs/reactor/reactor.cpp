// Reactor: the loop. What a turn does, how it waits, and what it costs to be woken.

#include <sys/eventfd.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/reactor/reactor_inside.h"
#include "rtrs/reactor/relax_processor.h"

namespace rtrs {
namespace {

constexpr std::uint32_t fixed_slots_max = 16384;
// Of Linux 6.2 (linux/io_uring.h), in the value of a notification; older headers do not have it.
constexpr std::uint32_t notif_usage_zc_copied = 1u << 31;
// Between two turns there was nothing to do.
constexpr Duration quiet_after = std::chrono::milliseconds(5);
constexpr Duration rest_after = std::chrono::milliseconds(500);
// Between two large payloads of one stream there are other turns.
constexpr Duration large_follows_within = std::chrono::milliseconds(1);
// Turns that bring the answers of several streams, each of which brings requests in others.
constexpr std::uint32_t several_heard_turns = 16;

Instant read_clock() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return Instant(std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec));
}

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

// Before Linux 6.4 a ring keeps a file for up to a second after it was unregistered, and a device
// stays claimed for so long: longer than a server's restart takes.
bool lets_go_of_files_at_once() noexcept {
    utsname kernel{};
    int version = 0;
    int release = 0;
    if (::uname(&kernel) != 0 || std::sscanf(kernel.release, "%d.%d", &version, &release) != 2) {
        return false;
    }
    return version > 6 || (version == 6 && release >= 4);
}

}  // namespace

Reactor::Inside::Inside(const Options& chosen)
    : options(chosen),
      fixed_buffers(ring.raw(), chosen.fixed_buffers),
      fixed_files(ring.raw(), lets_go_of_files_at_once() ? chosen.fixed_files : 0),
      helper([this](std::function<void()> done) { mailbox.post(std::move(done)); }),
      now(read_clock()) {}

Reactor::Inside::~Inside() {
    RTRS_ASSERT(!in_turn);
    drain();
    if (notice >= 0) ::close(notice);
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
    notice = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (notice < 0) return from_errno(errno);
    listen_to_bell();
    return {};
}

void Reactor::Inside::listen_to_bell() {
    io_uring_prep_read(prepare(bell_read), mailbox.bell(), &bell_read.count, sizeof bell_read.count,
                       0);
}

void Reactor::Inside::BellRead::done(Operation& operation, const Result&) {
    auto& self = static_cast<BellRead&>(operation);
    self.inside.listen_to_bell();
    self.inside.mailbox.deliver();
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

void Reactor::Inside::turn(std::optional<Duration> max_wait) {
    RTRS_ASSERT(!in_turn);
    receive_buffers.top_up();
    std::optional<Duration> wait = wait_limit(max_wait);
    if (look_around()) wait = Duration::zero();
    if (polled.in_flight() > 0) {
        poll_until_news(wait);
        wait = Duration::zero();
    }
    if (wait != Duration::zero() && may_look() && found_by_looking(wait)) {
        wait = Duration::zero();
    }
    if (wait != Duration::zero() && !ring.has_news() && announce_sleep()) wait = Duration::zero();
    this->wait(wait);
    now = read_clock();
    if (now - std::exchange(woke, now) >= rest_after) receive_buffers.rest();
    begin_turn();
    ++statistics.turns;
    reap();
    if (polled.in_flight() > 0) reap_polled();
    timers.expire(now);
    end_turn();
}

// The rest of the group goes on meanwhile. Of this member nothing but the ring's inside is touched.
void Reactor::Inside::wait(std::optional<Duration> wait) {
    waits_until = wait ? now + *wait : Instant::max();
    const OthersTurn others(group);
    if (storage_operations > 0) {
        ring.submit_and_wait(wait, Ring::WaitsAs::iowait);
    } else if (!ring.idles_aside() || watched || wait == Duration::zero()) {
        ring.submit_and_wait(wait, Ring::WaitsAs::idle);
    } else {
        wait_quietly(wait);
    }
}

// Under load something comes before the kernel has to be told that this is no waiting for I/O.
void Reactor::Inside::wait_quietly(std::optional<Duration> wait) {
    const Instant begin = read_clock();
    const Duration at_most = wait.value_or(Duration::max());
    ring.submit_and_wait(std::min(at_most, quiet_after), Ring::WaitsAs::idle);
    const Duration waited = read_clock() - begin;
    if (ring.has_news() || waited < quiet_after || waited >= at_most) return;
    ring.submit_and_wait_aside(wait ? std::optional(at_most - waited) : std::nullopt, notice);
}

bool Reactor::Inside::may_look() const noexcept {
    if (!busy_poll || (awaited != nullptr && *awaited == 0)) return false;
    return now - large_receive_at >= large_follows_within;
}

// Looks instead of sleeping, as long as that is allowed.
bool Reactor::Inside::found_by_looking(std::optional<Duration> wait) {
    waits_until = wait ? now + *wait : Instant::max();
    const Instant begin = read_clock();
    Duration window = busy_poll->begin(begin);
    if (wait) window = std::min(window, *wait);
    if (window <= Duration::zero()) return false;
    submit_prepared();
    if (ring.has_news()) return true;
    const Instant end = begin + window;
    // Lookouts belong to who has the baton: with none it is not taken back before the end.
    const bool alone = lookouts.empty();
    for (Instant at = begin; at < end; at = read_clock()) {
        if (news_in_ring(alone ? end : at) || look_around()) {
            ++statistics.looks_found;
            busy_poll->found(read_clock());
            return true;
        }
    }
    ++statistics.looks_fruitless;
    busy_poll->fruitless(read_clock());
    return false;
}

void Reactor::Inside::submit_prepared() {
    const OthersTurn others(group);
    if (ring.prepared() > 0) ring.submit();
}

// Looks for a moment at least. The rest of the group goes on meanwhile.
bool Reactor::Inside::news_in_ring(Instant until) {
    constexpr int looks_per_clock = 16;
    const OthersTurn others(group);
    if (ring.prepared() > 0) ring.submit();
    do {
        for (int i = 0; i < looks_per_clock; ++i) {
            if (ring.has_news()) return true;
            relax_processor();
        }
    } while (read_clock() < until);
    return false;
}

bool Reactor::Inside::look_around() noexcept {
    bool news = false;
    lookouts.for_each([&](Lookout& lookout) { news |= lookout.look(); });
    return news;
}

// Asks the devices once at least, and until there is something to do.
void Reactor::Inside::poll_until_news(std::optional<Duration> wait) {
    const Instant begin = read_clock();
    waits_until = wait ? now + *wait : Instant::max();
    if (ring.prepared() > 0) ring.submit();
    for (;;) {
        polled.look();
        if (polled.has_news() || news_beside_polling()) return;
        if (wait && read_clock() - begin >= *wait) return;
    }
}

bool Reactor::Inside::news_beside_polling() noexcept {
    if (!ring.tells_news()) ring.submit_and_wait(Duration::zero(), Ring::WaitsAs::idle);
    return ring.has_news() || look_around();
}

// As reap(): what the handlers cause waits for the next turn.
void Reactor::Inside::reap_polled() {
    for (std::uint32_t left = polled.in_flight(); left > 0 && polled.has_news(); --left) {
        const PolledRing::Ended ended = polled.take();
        ++statistics.completions;
        hand_out({reinterpret_cast<std::uintptr_t>(ended.data), ended.result, 0});
    }
}

bool Reactor::Inside::announce_sleep() noexcept {
    bool news = false;
    lookouts.for_each([&](Lookout& lookout) { news |= lookout.before_sleep(); });
    return news;
}

// The last turn's time is good enough to count from: a timer may be late by one turn, and a
// reading of the clock per turn is saved.
std::optional<Duration> Reactor::Inside::wait_limit(
    std::optional<Duration> max_wait) const noexcept {
    if (!turn_end.empty()) return Duration::zero();
    const std::optional<Instant> deadline = timers.next_deadline();
    if (!deadline) return max_wait;
    const Duration until = std::max(*deadline - now, Duration::zero());
    return max_wait ? std::min(*max_wait, until) : until;
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
    if (const auto sent = std::exchange(called_now, std::nullopt)) {
        hand_out(*sent);
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

// The ring's own descriptor will not do: nobody is woken through it while completions are deferred
// until we ask for them. The registered eventfd is signalled then too.
//
// Readable at first: what was prepared before waits for a turn, and what has come has told nobody.
int Reactor::Inside::watch() {
    RTRS_ASSERT(!polled.is_open());
    if (std::exchange(watched, true)) return notice;
    RTRS_ASSERT(io_uring_register_eventfd(ring.raw(), notice) == 0);
    constexpr std::uint64_t once = 1;
    RTRS_ASSERT(::write(notice, &once, sizeof once) == sizeof once);
    return notice;
}

// A signal that may not be given where it is caused is put off by Linux; from 6.11 on that happens
// once in the life of a registration, and later ones are lost (seen with 6.12.117). Nobody would be
// woken any more then: work is only announced if none waits already. So each turn has a
// registration of its own: at least one signal comes after it.
void Reactor::Inside::forget_notice() noexcept {
    RTRS_ASSERT(io_uring_unregister_eventfd(ring.raw()) == 0);
    RTRS_ASSERT(io_uring_register_eventfd(ring.raw(), notice) == 0);
    std::uint64_t count = 0;
    RTRS_ASSERT(::read(notice, &count, sizeof count) == sizeof count || errno == EAGAIN);
}

// Who waits on fd() cannot see our timers: a timeout in the ring makes it readable in time.
void Reactor::Inside::announce_deadline() {
    announce_sleep();  // arms a timer if there is news
    const std::optional<Instant> deadline = timers.next_deadline();
    if (deadline && deadline != alarm.at) {
        const Duration since_epoch = deadline->time_since_epoch();
        const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
        alarm.time = {seconds.count(), (since_epoch - seconds).count()};
        alarm.at = deadline;
        if (alarm.in_flight) {
            // If it goes off meanwhile this fails, and the turn that its completion causes comes
            // back here.
            io_uring_prep_timeout_update(prepare_unanswered(), &alarm.time,
                                         reinterpret_cast<std::uintptr_t>(&alarm),
                                         IORING_TIMEOUT_ABS);
        } else {
            io_uring_prep_timeout(prepare(alarm), &alarm.time, 0, IORING_TIMEOUT_ABS);
        }
    }
    receive_buffers.top_up();
    ring.submit();
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

void Reactor::set_busy_poll(Duration window, const std::uint32_t* awaited) {
    inside_->awaited = awaited;
    inside_->busy_poll.reset();
    if (window > Duration::zero() && inside_->ring.tells_news()) {
        inside_->busy_poll.emplace(window, read_clock());
    }
}

Instant Reactor::now() const noexcept {
    const Inside& at = inside_->group == nullptr ? *inside_ : *reactor_of_this_thread->inside_;
    return at.in_turn ? at.now : read_clock();
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

bool Reactor::polls_busily() const noexcept { return inside_->busy_poll.has_value(); }

void Reactor::add_lookout(Lookout& lookout) noexcept { inside_->lookouts.push_back(lookout); }

void Reactor::remove_lookout(Lookout& lookout) noexcept {
    if (lookout.linked()) IntrusiveList<Lookout>::remove(lookout);
}

void Reactor::run() {
    const Ring::FastDescriptor fast(inside_->ring);
    inside_->now = read_clock();
    do {
        inside_->turn(std::nullopt);
    } while (!inside_->stopping.load(std::memory_order_acquire));
    inside_->stopping.store(false, std::memory_order_relaxed);
    // What the last turn prepared.
    inside_->ring.submit();
    if (inside_->polled.prepared() > 0) inside_->polled.look();
}

void Reactor::run_turn_end() {
    RTRS_ASSERT(!inside_->in_turn);
    if (inside_->turn_end.empty()) return;
    inside_->now = read_clock();
    inside_->begin_turn();
    inside_->end_turn();
}

void Reactor::run_once(std::optional<Duration> max_wait) {
    const bool watched = inside_->watched;
    if (watched) inside_->forget_notice();  // before the turn: what comes during it counts again
    if (!inside_->turn_end.empty()) {
        run_turn_end();
        max_wait = Duration::zero();
    } else {
        inside_->now = read_clock();
    }
    inside_->turn(max_wait);
    if (watched) inside_->announce_deadline();
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

void Reactor::offload(std::function<void()> work, std::function<void()> done) {
    inside_->helper.run(std::move(work), std::move(done));
}

const Reactor::Statistics& Reactor::statistics() const noexcept { return inside_->statistics; }

void Reactor::arm(Timer& timer, Instant deadline) {
    const Instant at = rounded(deadline, now());
    inside_->timers.arm(timer, at);
    if (inside_->elsewhere() && at < inside_->waits_until) inside_->mailbox.ring_bell();
}
void Reactor::disarm(Timer& timer) noexcept { inside_->timers.disarm(timer); }

}  // namespace rtrs
