#include "rtrs/reactor/ring.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/reactor/enter_result.h"

namespace rtrs {
namespace {

// Completions of one turn plus what multishot operations add; beyond it the kernel keeps them in
// a list of its own (NODROP), which is only slower.
constexpr std::uint32_t completions_per_submission = 4;
constexpr std::uint32_t completion_entries_max = 65536;

// Threads of the kernel that wait for files at once; there are as many as there is to wait for.
constexpr unsigned file_workers_max = 1024;

// include/uapi/linux/io_uring.h of Linux 6.15; Debian's headers are older.
constexpr unsigned enter_no_iowait = 1U << 7;
constexpr std::uint32_t feature_no_iowait = 1U << 17;

}  // namespace

Ring::~Ring() {
    if (open_) io_uring_queue_exit(&ring_);
}

std::error_code Ring::open(std::uint32_t submission_entries, Setup setup) {
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE;
    parameters.cq_entries =
        std::min(submission_entries * completions_per_submission, completion_entries_max);
    if (setup == Setup::tuned) {
        parameters.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                            IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
                            IORING_SETUP_SUBMIT_ALL;
    }
    const int result = io_uring_queue_init_params(submission_entries, &ring_, &parameters);
    if (result < 0) return from_errno(result);
    const std::uint32_t needed = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_RSRC_TAGS;
    if ((parameters.features & needed) != needed) {
        io_uring_queue_exit(&ring_);
        return from_errno(EINVAL);
    }
    open_ = true;
    if ((parameters.features & feature_no_iowait) != 0) idle_flag_ = enter_no_iowait;
    tells_news_ = setup == Setup::tuned;
    return {};
}

void Ring::enable() noexcept {
    if (enabled_) return;
    // The library's io_uring_enable_rings() is declared but not exported in liburing 2.3.
    RTRS_ASSERT(io_uring_register(static_cast<unsigned>(ring_.ring_fd),
                                  IORING_REGISTER_ENABLE_RINGS, nullptr, 0) == 0);
    enabled_ = true;
    keep_workers_here();
}

// The kernel's threads that serve what would block run anywhere, even if this thread may not.
void Ring::keep_workers_here() noexcept {
    cpu_set_t here;
    if (::sched_getaffinity(0, sizeof here, &here) != 0) return;
    if (CPU_COUNT(&here) >= static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))) return;
    // Without it (Linux before 5.14) they stay where the kernel puts them.
    io_uring_register_iowq_aff(&ring_, sizeof here, &here);
}

// The kernel has four per processor for what flushes files and empties ranges of them. A file
// system that does not answer keeps each that waits for it, and other files would wait for one.
void Ring::let_workers_be_many() noexcept {
    // Zero leaves it as it is: workers for what is no file of known size.
    unsigned at_most[2] = {file_workers_max, 0};
    // Without it (Linux before 5.15) there are fewer.
    io_uring_register_iowq_max_workers(&ring_, at_most);
}

void Ring::submit() noexcept {
    enable();
    RTRS_ASSERT(harmless(io_uring_submit(&ring_)));
}

io_uring_sqe* Ring::next_entry_when_full() noexcept {
    for (;;) {
        submit();
        if (io_uring_sqe* entry = io_uring_get_sqe(&ring_)) return entry;
        // The kernel took nothing: let it finish something first.
        RTRS_ASSERT(harmless(io_uring_get_events(&ring_)));
    }
}

void Ring::submit_and_wait(Duration wait, WaitsAs as) noexcept {
    enable();
    const unsigned flags = as == WaitsAs::idle ? idle_flag_ : 0;
    int result = 0;
    if (wait == for_ever) {
        result = enter(nullptr, flags);
    } else if (wait <= Duration::zero()) {
        result = io_uring_submit_and_get_events(&ring_);
    } else {
        const __kernel_timespec timeout = kernel_time(wait);
        result = enter(&timeout, flags);
    }
    RTRS_ASSERT(harmless(result) || result == -ETIME);
}

// In place of io_uring_submit_and_wait_timeout(), which takes no flags: liburing's
// io_uring_set_iowait() is newer (2.10) than Debian's liburing. An entry's place in the queue is
// its own for good since liburing 2.3, so that moving the tail is all there is to publishing.
int Ring::enter(const __kernel_timespec* timeout, unsigned flags) noexcept {
    io_uring_sq& queue = ring_.sq;
    queue.sqe_head = queue.sqe_tail;
    io_uring_smp_store_release(queue.ktail, queue.sqe_tail);
    const unsigned prepared = queue.sqe_tail - io_uring_smp_load_acquire(queue.khead);
    flags |= IORING_ENTER_GETEVENTS | descriptor_flag_;
    const auto descriptor = static_cast<unsigned>(ring_.enter_ring_fd);
    if (timeout == nullptr) {
        return io_uring_enter2(descriptor, prepared, 1, flags, nullptr, _NSIG / 8);
    }
    io_uring_getevents_arg argument{};
    argument.ts = reinterpret_cast<std::uintptr_t>(timeout);
    return io_uring_enter2(descriptor, prepared, 1, flags | IORING_ENTER_EXT_ARG,
                           reinterpret_cast<sigset_t*>(&argument), sizeof argument);
}

// The eventfd is registered for this one wait: Linux may lose signals after the first of a
// registration (Reactor::Inside::renew_notice() has the story). What came before has told
// nobody, so it is looked for once more.
void Ring::submit_and_wait_aside(Duration wait, int notice) noexcept {
    enable();
    if (io_uring_register_eventfd(&ring_, notice) != 0) return submit_and_wait(wait, WaitsAs::idle);
    submit_and_wait(Duration::zero(), WaitsAs::idle);
    if (!has_news()) {
        pollfd signal{notice, POLLIN, 0};
        const __kernel_timespec timeout = kernel_time(wait);
        const timespec limit{timeout.tv_sec, static_cast<long>(timeout.tv_nsec)};
        const timespec* at_most = wait == for_ever ? nullptr : &limit;
        RTRS_ASSERT(::ppoll(&signal, 1, at_most, nullptr) >= 0 || errno == EINTR);
    }
    RTRS_ASSERT(io_uring_unregister_eventfd(&ring_) == 0);
    std::uint64_t count = 0;
    RTRS_ASSERT(::read(notice, &count, sizeof count) == sizeof count || errno == EAGAIN);
    submit_and_wait(Duration::zero(), WaitsAs::idle);
}

__kernel_timespec Ring::kernel_time(Duration duration) noexcept {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(duration);
    return {seconds.count(), (duration - seconds).count()};
}

bool Ring::owned_by_this_thread() noexcept {
    return enabled_ && io_uring_get_events(&ring_) != -EEXIST;
}

Ring::FastDescriptor::FastDescriptor(Ring& ring) noexcept
    : ring_(ring), registered_(io_uring_register_ring_fd(&ring.ring_) == 1) {
    if (registered_) ring_.descriptor_flag_ = IORING_ENTER_REGISTERED_RING;
}

Ring::FastDescriptor::~FastDescriptor() {
    if (!registered_) return;
    io_uring_unregister_ring_fd(&ring_.ring_);
    ring_.descriptor_flag_ = 0;
}

}  // namespace rtrs
