// One io_uring, set up for a single thread: submission that never loses an entry, and waiting.
//
// OWNER: Reactor. THREAD: open() on any thread; the thread of the first submit owns the ring from
// then on (the ring is created disabled and is enabled there, which is when the kernel remembers
// the thread).
#pragma once

#include <liburing.h>

#include <cstdint>
#include <system_error>

#include "rtrs/base/instant.h"

namespace rtrs {

class Ring {
  public:
    // tuned: completions are processed only where the owner waits (DEFER_TASKRUN), which saves
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

    // Returns the next free entry. If there is none, the prepared entries are submitted first.
    io_uring_sqe* next_entry() noexcept {
        io_uring_sqe* entry = io_uring_get_sqe(&ring_);
        return entry != nullptr ? entry : next_entry_when_full();
    }
    // As what the kernel accounts the time of a wait: as waiting for storage (iowait of /proc/stat,
    // /proc/pressure/io), or as idleness, as for a socket. Linux before 6.15 calls all of it
    // iowait; there submit_and_wait_aside() is the way to count as idle.
    enum class WaitsAs : std::uint8_t { iowait, idle };
    // Waits are plain numbers: an optional is assembled on the stack and read from there as a
    // whole, which makes the processor wait for its parts.
    static constexpr Duration for_ever = Duration::max();
    // Submits, and waits for one completion for at most `wait`. A signal ends the wait.
    void submit_and_wait(Duration wait, WaitsAs as) noexcept;
    // The same, but counted as idle, by poll(2) on `notice`: an eventfd in non-blocking mode that
    // nobody else uses. Costs a few more system calls. Only for a ring of which idles_aside() is
    // true.
    bool idles_aside() const noexcept { return tells_news_ && idle_flag_ == 0; }
    void submit_and_wait_aside(Duration wait, int notice) noexcept;
    void submit() noexcept;
    // Number of prepared entries that are not submitted yet.
    unsigned prepared() noexcept { return io_uring_sq_ready(&ring_); }
    // Whether submit_and_wait() would most likely return at once. Takes one look at memory, no
    // system call. What the kernel has to do may complete nothing. A plain ring does not show
    // everything.
    bool tells_news() const noexcept { return tells_news_; }
    bool has_completions() noexcept { return io_uring_cq_ready(&ring_) > 0; }
    bool has_news() noexcept {
        return has_completions() || (IO_URING_READ_ONCE(*ring_.sq.kflags) & more_flags) != 0;
    }
    // Whether, as far as is known now, a system call would have something to submit or to bring.
    bool is_behind() noexcept {
        return prepared() > 0 || (IO_URING_READ_ONCE(*ring_.sq.kflags) & more_flags) != 0;
    }
    // Whether completions are there and a system call would now bring no more.
    bool has_all_news() noexcept {
        return tells_news_ && prepared() == 0 && has_completions() &&
               (IO_URING_READ_ONCE(*ring_.sq.kflags) & more_flags) == 0;
    }
    // From now on as many threads of the kernel may wait for files as need to.
    void let_workers_be_many() noexcept;
    // False if this thread does not own the ring, or the ring never ran.
    bool owned_by_this_thread() noexcept;

    // While it exists, system calls skip the lookup of the ring's descriptor. It is scoped because
    // the kernel keeps the table of such descriptors per thread, not per ring.
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
    // Flags that say that a system call would bring completions.
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
    unsigned idle_flag_ = 0;        // for io_uring_enter(): the wait does not count as iowait
    unsigned descriptor_flag_ = 0;  // for io_uring_enter(): enter_ring_fd is a registered one
};

}  // namespace rtrs
