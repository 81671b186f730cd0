#include "daemon/config/cpu_list.h"

#include <sched.h>

#include <cerrno>
#include <charconv>

#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

static_assert(cpus_max == CPU_SETSIZE);

// A number at the beginning of the text, which is moved on.
std::optional<std::size_t> take_number(std::string_view& text) noexcept {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number >= cpus_max) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return number;
}

bool take(std::string_view& text, char wanted) noexcept {
    if (!text.starts_with(wanted)) return false;
    text.remove_prefix(1);
    return true;
}

}  // namespace

std::optional<CpuList> parse_cpu_list(std::string_view text) noexcept {
    CpuList cpus;
    do {
        const auto first = take_number(text);
        const auto last = first && take(text, '-') ? take_number(text) : first;
        if (!first || !last || *last < *first) return std::nullopt;
        for (std::size_t cpu = *first; cpu <= *last; ++cpu) cpus.set(cpu);
    } while (take(text, ','));
    if (!text.empty()) return std::nullopt;
    return cpus;
}

std::string to_string(const CpuList& cpus) {
    std::string text;
    for (std::size_t first = 0; first < cpus_max; ++first) {
        if (!cpus[first]) continue;
        std::size_t last = first;
        while (last + 1 < cpus_max && cpus[last + 1]) ++last;
        if (!text.empty()) text += ',';
        text += std::to_string(first);
        if (last > first) text += (last == first + 1 ? "," : "-") + std::to_string(last);
        first = last;
    }
    return text;
}

std::expected<CpuList, std::error_code> run_on_cpus(const CpuList& cpus) {
    RTRS_ASSERT(cpus.any());
    cpu_set_t set;
    CPU_ZERO(&set);
    for (std::size_t cpu = 0; cpu < cpus_max; ++cpu) {
        if (cpus[cpu]) CPU_SET(cpu, &set);
    }
    // The kernel leaves out what there is not, or what the process's cpuset has not.
    if (::sched_setaffinity(0, sizeof set, &set) != 0 ||
        ::sched_getaffinity(0, sizeof set, &set) != 0) {
        return std::unexpected(std::error_code(errno, std::system_category()));
    }
    CpuList used;
    for (std::size_t cpu = 0; cpu < cpus_max; ++cpu) used[cpu] = CPU_ISSET(cpu, &set);
    return used;
}

}  // namespace rnbd
