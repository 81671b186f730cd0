#include "rtrs/reactor/thread_scheduling.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <charconv>
#include <memory>
#include <string>
#include <string_view>

namespace rtrs {
namespace {

constexpr const char* tasks = "/proc/self/task";

bool use(pid_t thread, int policy) noexcept {
    const sched_param none{};
    return ::sched_setscheduler(thread, policy, &none) == 0;
}

// The contents of a small file, cut off at the end of the buffer.
template <std::size_t bytes_max>
std::string_view contents(int fd, char (&buffer)[bytes_max]) noexcept {
    const ssize_t bytes = ::pread(fd, buffer, bytes_max, 0);
    return {buffer, bytes > 0 ? static_cast<std::size_t>(bytes) : 0};
}

}  // namespace

bool ThreadScheduling::open() noexcept {
    if (::sched_getscheduler(0) != SCHED_OTHER) return false;
    schedstat_ = Descriptor(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
    const auto now = figures();
    // A thread that reads them has run. Without them the kernel says 0.
    return now && (now->runs > 0 || now->waited > Duration::zero());
}

// Time on processors in ns, time of waiting for one in ns, how often it was given one
// (Documentation/scheduler/sched-stats.rst).
std::optional<BatchScheduling::Figures> ThreadScheduling::figures() const noexcept {
    char buffer[64];
    const std::string_view text = contents(schedstat_.get(), buffer);
    std::uint64_t values[3];
    const char* at = text.data();
    const char* const end = at + text.size();
    for (std::uint64_t& value : values) {
        while (at != end && *at == ' ') ++at;
        const auto [next, error] = std::from_chars(at, end, value);
        if (error != std::errc()) return std::nullopt;
        at = next;
    }
    return BatchScheduling::Figures{.runs = values[2],
                                    .waited = Duration(static_cast<std::int64_t>(values[1]))};
}

bool ThreadScheduling::use_batch(bool batch) const {
    if (!use(0, batch ? SCHED_BATCH : SCHED_OTHER)) return false;
    if (!batch) use_usual_for_ring_workers();
    return true;
}

// Their names end with the number that the thread has in the first PID namespace, which may not be
// this one: those of other rings of the process get the usual policy too.
void ThreadScheduling::use_usual_for_ring_workers() const {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(tasks), ::closedir);
    if (!folder) return;
    while (const dirent* const entry = ::readdir(folder.get())) {
        const std::string_view number = entry->d_name;
        pid_t thread = 0;
        std::from_chars(number.data(), number.data() + number.size(), thread);
        const std::string path = tasks + ("/" + std::string(number)) + "/comm";
        const Descriptor comm(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        char buffer[32];
        if (thread == 0 || !comm || !contents(comm.get(), buffer).starts_with("iou-wrk-")) continue;
        static_cast<void>(use(thread, SCHED_OTHER));  // it may have ended
    }
}

}  // namespace rtrs
