#include "rtrs/base/descriptors.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

namespace rtrs {

std::uint64_t descriptors_max() noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return std::numeric_limits<std::uint64_t>::max();
    }
    return limit.rlim_cur;
}

std::uint64_t descriptors_open(int fd) noexcept {
    const std::uint64_t at_least = static_cast<std::uint64_t>(fd) + 1;
    struct stat folder{};
    if (::stat("/proc/self/fd", &folder) != 0) return at_least;
    return std::max(at_least, static_cast<std::uint64_t>(folder.st_size));
}

bool is_of_the_last_quarter(int fd) noexcept {
    const std::uint64_t all = descriptors_max();
    return descriptors_open(fd) > all - all / 4;
}

DescriptorsLeft descriptors_left(int fd) noexcept {
    const std::uint64_t all = descriptors_max();
    const std::uint64_t others = std::min(all, descriptors_open(fd) - 1);
    const auto without = [left = all - others](std::uint64_t kept) {
        return left - std::min(left, kept);
    };
    return {.to_new = without(std::clamp<std::uint64_t>(all / 8, 16, 128)),
            .to_known = without(std::clamp<std::uint64_t>(all / 16, 8, 64))};
}

}  // namespace rtrs
