// What the files of Reactor share: reactor.cpp (the loop), waiting.cpp (what it does until
// something comes) and ring_work.cpp (the ring work that others ask for).
#pragma once

#include <liburing.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/descriptor.h"
#include "rtrs/base/helper_thread.h"
#include "rtrs/base/timer_queue.h"
#include "rtrs/reactor.h"
#include "rtrs/reactor/batch_scheduling.h"
#include "rtrs/reactor/busy_poll.h"
#include "rtrs/reactor/fixed_table.h"
#include "rtrs/reactor/mailbox.h"
#include "rtrs/reactor/membership.h"
#include "rtrs/reactor/polled_ring.h"
#include "rtrs/reactor/receive_buffers.h"
#include "rtrs/reactor/ring.h"
#include "rtrs/reactor/thread_scheduling.h"

namespace rtrs {

// How the loop's thread is scheduled.
struct LoopScheduling {
    BatchScheduling batch;
    std::optional<ThreadScheduling> thread;  // none: not opened yet
    bool is_batch = false;                   // what the kernel was told
};

struct Reactor::Inside {
    // A completion queue entry, copied so that its place is free before its handler runs.
    struct Reaped {
        std::uint64_t user_data;
        std::int32_t value;
        std::uint32_t flags;
    };

    explicit Inside(const Options& chosen);
    ~Inside();

    std::error_code open();
    void drain();
    void discard_completions() noexcept;
    static Instant read_clock() noexcept;

    // A turn.
    void turn(Duration max_wait);
    void begin_turn() noexcept;
    void reap();
    void reap_polled();
    void hand_out(const Reaped& reaped);
    void end_turn();
    void run_turn_end();
    bool schedule_thread();
    io_uring_sqe* prepare(Operation& operation) noexcept;
    io_uring_sqe* prepare_unanswered() noexcept;
    io_uring_sqe* prepare_polled(Operation& operation) noexcept;

    // Waiting for news, for a limited time or Ring::for_ever.
    void wait_for_news(Duration max_wait);
    Duration wait_limit(Duration max_wait) const noexcept;
    Instant end_of(Duration wait) const noexcept;
    void wait(Duration wait);
    void wait_quietly(Duration wait);
    bool may_look() noexcept;
    bool found_by_looking(Duration wait);
    void submit_prepared();
    bool news_in_ring(Instant until);
    bool look_around() noexcept;
    void poll_until_news(Duration wait);
    bool news_beside_polling() noexcept;
    bool announce_sleep() noexcept;
    // For those who wait elsewhere, on fd().
    int watch();
    void signal_notice() noexcept;
    void renew_notice() noexcept;
    void forget_notice() noexcept;
    void announce_deadline();

    // Whether this is the thread of another member of the group: then the ring must not be touched
    // from here, and its owner is waiting.
    bool elsewhere() const noexcept {
        return group != nullptr && reactor_of_this_thread != group->members[number];
    }
    // Ring work, prepared on the ring's own thread: fill(entry) prepares everything but the user
    // data.
    template <typename Fill>
    void begin(Operation& operation, Fill fill);
    template <typename Fill>
    void begin_on_storage(Operation& operation, Fill fill);
    template <typename Fill>
    void begin_unanswered(Fill fill);
    template <typename Do>
    void on_its_thread(Do what);
    template <typename Do>
    void unregister(Do what);
    bool may_call_send() const noexcept { return in_turn && may_call && !elsewhere(); }
    bool called(Operation& operation, int fd, const msghdr* message, int flags) noexcept;
    // Whether file operations may begin now.
    bool may_begin_storage() const noexcept {
        return prompt_storage && in_turn && group == nullptr;
    }
    void cancel(Operation& operation) noexcept;
    void cancel_later(Operation& operation);
    void cancel_as_asked(std::uint64_t asked) noexcept;

    void listen_to_bell();
    void on_bell();

    // Operations of the reactor itself.
    struct Alarm : Operation {
        Alarm() noexcept : Operation(&done) {}
        static void done(Operation& operation, const Result& result);
        std::optional<Instant> at;
        __kernel_timespec time{};
    };

    const Options options;
    // Memory that the kernel may use is declared before the ring, so that it is destroyed after it.
    ReceiveBuffers receive_buffers;
    Mailbox mailbox;
    MemberOperation<&Inside::on_bell> bell_read{*this};
    std::uint64_t bell_count = 0;
    Alarm alarm;
    Ring ring;
    PolledRing polled;
    FixedTable<BufferSlots> fixed_buffers;
    FixedTable<FileSlots> fixed_files;
    HelperThread helper;
    const bool multishot_waits;
    const bool signals_get_lost;

    TimerQueue timers;
    IntrusiveList<TurnTask> turn_end;
    Instant now;     // the time of this turn
    Instant woke{};  // when the last turn began to work
    std::optional<BusyPoll> busy_poll;
    InFlight polls_for;  // it busy-polls only while so many requests are in flight
    std::uint32_t requests_in_flight = 0;
    IntrusiveList<Lookout> lookouts;
    std::optional<LoopScheduling> scheduling;  // none: as the kernel does by itself
    Statistics statistics;
    std::uint64_t outstanding = 0;
    std::uint64_t storage_operations = 0;  // among those outstanding
    Instant large_receive_at{};            // when the last large receive began or ended
    bool in_turn = false;
    bool prompt_sends = true;
    bool prompt_storage = true;
    std::uint32_t streams_heard = 0;  // sockets that brought bytes since the last turn began
    std::uint32_t several_heard = 0;  // for how many more turns they count as several
    // In this turn: whether a send may still be done by a system call; the send that was, and its
    // result.
    bool may_call = false;
    Operation* called_now = nullptr;
    std::int32_t call_result = 0;
    // For a group. What others ask of this member while it waits: they hold the baton then.
    Membership* group = nullptr;
    std::uint32_t number = 0;
    std::optional<cpu_set_t> held_on;  // where its thread may run; none: on all processors
    Instant waits_until{};
    std::uint32_t handed_over = 0;    // operations in the mailbox
    std::uint32_t to_unregister = 0;  // files and buffers, likewise
    // A cancellation that is in the mailbox, of an operation that has not completed since.
    struct ToCancel {
        std::uint64_t asked;
        Operation* operation;
    };
    std::deque<ToCancel> to_cancel;  // in the order in which they were asked for
    std::uint64_t cancellations_asked = 0;
    Descriptor notice;              // eventfd for those who wait on fd(), or outside the ring
    bool watched = false;           // fd() was asked for
    bool notice_was_given = false;  // since its registration
    std::atomic<bool> stopping = false;
};

template <typename Do>
void Reactor::Inside::on_its_thread(Do what) {
    if (!elsewhere()) return what();
    mailbox.post(std::move(what));
}

template <typename Do>
void Reactor::Inside::unregister(Do what) {
    if (!elsewhere()) return what();
    ++to_unregister;
    mailbox.post([this, what] {
        --to_unregister;
        what();
    });
}

template <typename Fill>
void Reactor::Inside::begin(Operation& operation, Fill fill) {
    RTRS_ASSERT(!operation.in_flight);
    operation.in_flight = true;
    if (!elsewhere()) return fill(prepare(operation));
    ++handed_over;
    mailbox.post([this, &operation, fill] {
        --handed_over;
        fill(prepare(operation));
    });
}

template <typename Fill>
void Reactor::Inside::begin_on_storage(Operation& operation, Fill fill) {
    begin(operation, [this, &operation, fill](io_uring_sqe* entry) {
        operation.of_storage = true;
        ++storage_operations;
        fill(entry);
    });
}

template <typename Fill>
void Reactor::Inside::begin_unanswered(Fill fill) {
    on_its_thread([this, fill] { fill(prepare_unanswered()); });
}

}  // namespace rtrs
