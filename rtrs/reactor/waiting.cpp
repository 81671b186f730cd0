// Reactor: how a turn waits for news, and what those who wait for it elsewhere are told.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/reactor/reactor_inside.h"
#include "rtrs/reactor/relax_processor.h"

namespace rtrs {
namespace {

// Between two turns there was nothing to do.
constexpr Duration quiet_after = std::chrono::milliseconds(5);
// Between two large payloads of one stream there are other turns.
constexpr Duration large_follows_within = std::chrono::milliseconds(1);

}  // namespace

void Reactor::Inside::wait_for_news(Duration max_wait) {
    Duration wait = wait_limit(max_wait);
    if (look_around()) wait = Duration::zero();
    if (polled.in_flight() > 0) {
        poll_until_news(wait);
        wait = Duration::zero();
    }
    if (wait != Duration::zero() && may_look() && found_by_looking(wait)) {
        wait = Duration::zero();
    }
    // Not by has_news(): what completes nothing does not keep the wait from sleeping.
    const bool may_sleep = wait != Duration::zero() && !ring.has_completions();
    if (may_sleep && announce_sleep()) wait = Duration::zero();
    // In a group the others have their turn while this member waits.
    if (group == nullptr && ring.has_all_news()) return;
    this->wait(wait);
}

bool Reactor::Inside::announce_sleep() noexcept {
    bool news = false;
    lookouts.for_each([&](Lookout& lookout) { news |= lookout.before_sleep(); });
    return news;
}

// The last turn's time is good enough to count from: a timer may be late by one turn, and a
// reading of the clock per turn is saved.
Duration Reactor::Inside::wait_limit(Duration max_wait) const noexcept {
    if (!turn_end.empty()) return Duration::zero();
    const std::optional<Instant> deadline = timers.next_deadline();
    if (!deadline) return max_wait;
    return std::min(max_wait, std::max(*deadline - now, Duration::zero()));
}

Instant Reactor::Inside::end_of(Duration wait) const noexcept {
    return wait == Ring::for_ever ? Instant::max() : now + wait;
}

// The rest of the group goes on meanwhile. Of this member nothing but the ring's inside is touched.
void Reactor::Inside::wait(Duration wait) {
    waits_until = end_of(wait);
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
void Reactor::Inside::wait_quietly(Duration wait) {
    const Instant begin = read_clock();
    ring.submit_and_wait(std::min(wait, quiet_after), Ring::WaitsAs::idle);
    const Duration waited = read_clock() - begin;
    if (ring.has_news() || waited < quiet_after || waited >= wait) return;
    ring.submit_and_wait_aside(wait == Ring::for_ever ? wait : wait - waited, notice.get());
}

bool Reactor::Inside::may_look() noexcept {
    if (!busy_poll) return false;
    if (requests_in_flight < polls_for.min || requests_in_flight > polls_for.max) return false;
    return now - large_receive_at >= large_follows_within && busy_poll->affords(now);
}

// Looks instead of sleeping, as long as that is allowed.
bool Reactor::Inside::found_by_looking(Duration wait) {
    waits_until = end_of(wait);
    const Instant begin = read_clock();
    const Duration window = std::min(busy_poll->begin(begin), wait);
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

// What has come meanwhile is fetched by the same system call.
void Reactor::Inside::submit_prepared() {
    const OthersTurn others(group);
    if (ring.prepared() > 0) ring.submit_and_wait(Duration::zero(), Ring::WaitsAs::idle);
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
void Reactor::Inside::poll_until_news(Duration wait) {
    const Instant begin = read_clock();
    waits_until = end_of(wait);
    if (ring.prepared() > 0) ring.submit();
    for (;;) {
        polled.look();
        if (polled.has_news() || news_beside_polling()) return;
        if (wait != Ring::for_ever && read_clock() - begin >= wait) return;
    }
}

bool Reactor::Inside::news_beside_polling() noexcept {
    if (!ring.tells_news()) ring.submit_and_wait(Duration::zero(), Ring::WaitsAs::idle);
    return ring.has_news() || look_around();
}

// The ring's own descriptor will not do: nobody is woken through it while completions are deferred
// until we ask for them. The registered eventfd is signalled then too.
//
// Readable at first: what was prepared before waits for a turn, and what has come has told nobody.
int Reactor::Inside::watch() {
    RTRS_ASSERT(!polled.is_open());
    if (std::exchange(watched, true)) return notice.get();
    RTRS_ASSERT(io_uring_register_eventfd(ring.raw(), notice.get()) == 0);
    signal_notice();
    return notice.get();
}

void Reactor::Inside::signal_notice() noexcept {
    constexpr std::uint64_t once = 1;
    RTRS_ASSERT(::write(notice.get(), &once, sizeof once) == sizeof once);
}

// A signal that may not be given where it is caused is put off by Linux; from 6.11 on that happens
// once in the life of a registration, and later ones are lost (io_uring/eventfd.c; seen with 6.12
// and 6.18). Nobody would be woken any more then: work is only announced if none waits already.
// Which causes are such ones depends on the release: another eventfd's signal is one everywhere,
// whatever comes by a socket is one with 6.12.117. So behind each signal comes a new registration,
// after which at least one more comes: one that was put off, and is not given yet, will be.
void Reactor::Inside::renew_notice() noexcept {
    if (!signals_get_lost || !std::exchange(notice_was_given, false)) return;
    RTRS_ASSERT(io_uring_unregister_eventfd(ring.raw()) == 0);
    RTRS_ASSERT(io_uring_register_eventfd(ring.raw(), notice.get()) == 0);
    if (ring.has_news()) signal_notice();  // it may have come while no signal could be given
}

// Behind the wait of a turn, whose own system call signals what it brings: that is no news any
// more. What came since then was perhaps signalled before this: announce_deadline() sees to it.
void Reactor::Inside::forget_notice() noexcept {
    std::uint64_t count = 0;
    if (::read(notice.get(), &count, sizeof count) == sizeof count) {
        notice_was_given = true;
    } else {
        RTRS_ASSERT(errno == EAGAIN);
    }
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
    renew_notice();
    ring.submit();
    // Work of which a signal is gone, and that this has not brought: the kernel does some of it at
    // a time, and what of that completes nothing is signalled no more. It may also have left the
    // mark that there is some when it has done the last; the bell makes it look again, so that
    // nobody is woken by that for ever.
    if (!ring.is_behind()) return;
    mailbox.ring_bell();
    signal_notice();
}

}  // namespace rtrs
