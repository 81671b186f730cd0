// One io_uring, set up for a single thread: submission that never loses an entry, and the wait.
//
// OWNER: Reactor. THREAD: open() anywhere; the thread of the first submit owns the ring from then
// on (the ring is created disabled and enabled there, which is when the kernel remembers the
// thread).
#pragma once

#include <liburing.h>

#include <cstdint>
#include <system_error>

#include "rtrs/base/instant.h"

namespace rtrs {

class Ring {
  public:
    // tuned: completions are worked off only where the owner waits (DEFER_TASKRUN), which saves
    // interrupts and locks. plain: what every io_uring has.
    enum class Setup : std::uint8_t { tuned, plain };

    Ring() = default;
    ~Ring();
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;

    // submission_entries: 1..32768, rounded up to a power of two.
    // ERRORS: ENOSYS, EPERM (off by sysctl or seccomp), EINVAL (flags unknown to this kernel),
    // ENOMEM.
    std::error_code open(std::uint32_t submission_entries, Setup setup);
    io_uring* raw() noexcept { return &ring_; }

    // The next free entry. When there is none, what is prepared is submitted first.
    io_uring_sqe* next_entry() noexcept {
        io_uring_sqe* entry = io_uring_get_sqe(&ring_);
        return entry != nullptr ? entry : next_entry_when_full();
    }
    // What the kernel's books call the time of a wait: waiting for storage (iowait of /proc/stat,
    // /proc/pressure/io), or idleness, as for a socket. Linux before 6.15 calls all of it iowait;
    // submit_and_wait_aside() is the way to be idle there.
    enum class WaitsAs : std::uint8_t { iowait, idle };
    // Waits are plain numbers: an optional is put together on the stack, and taken from there as a
    // whole, which keeps the processor waiting for its parts.
    static constexpr Duration for_ever = Duration::max();
    // Submits and waits for one completion, at most wait. A signal ends the wait.
    void submit_and_wait(Duration wait, WaitsAs as) noexcept;
    // The same, idle, by poll(2) on notice: an eventfd in non-blocking mode that nobody else uses.
    // Costs some system calls more. Only of a ring that idles aside.
    bool idles_aside() const noexcept { return tells_news_ && idle_flag_ == 0; }
    void submit_and_wait_aside(Duration wait, int notice) noexcept;
    void submit() noexcept;
    // Prepared entries that wait for their submission.
    unsigned prepared() noexcept { return io_uring_sq_ready(&ring_); }
    // Whether submit_and_wait() would return at once, most likely: one look at memory, no system
    // call. What the kernel has to do may complete nothing. A plain ring does not tell all.
    bool tells_news() const noexcept { return tells_news_; }
    bool has_completions() noexcept { return io_uring_cq_ready(&ring_) > 0; }
    bool has_news() noexcept {
        return has_completions() || (IO_URING_READ_ONCE(*ring_.sq.kflags) & more_flags) != 0;
    }
    // Whether a system call has something to do, or to bring, that is known now.
    bool is_behind() noexcept {
        return prepared() > 0 || (IO_URING_READ_ONCE(*ring_.sq.kflags) & more_flags) != 0;
    }
    // Whether completions are there, and a system call would bring no more of them now.
    bool has_all_news() noexcept {
        return tells_news_ && prepared() == 0 && has_completions() &&
               (IO_URING_READ_ONCE(*ring_.sq.kflags) & more_flags) == 0;
    }
    // From now on as many threads of the kernel may wait for files as have to.
    void let_workers_be_many() noexcept;
    // False if this thread is not the ring's, or the ring never ran.
    bool owned_by_this_thread() noexcept;

    // While it lives, system calls skip the lookup of the ring's descriptor. Per thread, therefore
    // scoped: the kernel's table of them is the thread's, not the ring's.
    class FastDescriptor {
      public:
        explicit FastDescriptor(Ring& ring) noexcept;
        ~FastDescriptor();
        FastDescriptor(const FastDescriptor&) = delete;
        FastDescriptor& operator=(const FastDescriptor&) = delete;

      private:
        Ring& ring_;
        bool registered_;
    };

  private:
    // Completions that a system call would bring.
    static constexpr unsigned more_flags = IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW;

    io_uring_sqe* next_entry_when_full() noexcept;
    void enable() noexcept;
    void keep_workers_here() noexcept;
    static __kernel_timespec kernel_time(Duration duration) noexcept;
    int enter(const __kernel_timespec* timeout, unsigned flags) noexcept;

    io_uring ring_{};
    bool open_ = false;
    bool enabled_ = false;
    bool tells_news_ = false;
    unsigned idle_flag_ = 0;        // for io_uring_enter(): the wait is no iowait
    unsigned descriptor_flag_ = 0;  // for io_uring_enter(): enter_ring_fd is a registered one
};

}  // namespace rtrs
