// A set of processors, as the kernel writes it: "0", "0-3,8" (cpuset(7), "List format").
#pragma once

#include <bitset>
#include <cstddef>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace rnbd {

// Processors are numbered below this.
constexpr std::size_t cpus_max = 1024;
// Empty: no wish.
using CpuList = std::bitset<cpus_max>;

// Numbers and ranges in any order, at least one; spaces are not allowed.
std::optional<CpuList> parse_cpu_list(std::string_view text) noexcept;
// Ascending, in ranges; "" if empty.
std::string to_string(const CpuList& cpus);

// The calling thread, and those that it starts from now on, run on these processors only. Returns
// those of them that there are and that this process may use. What the thread allocates from now
// on is in their memory, where a machine has several.
// ASSUMES: not empty. ERRORS: EINVAL if none of them is left; those of sched_setaffinity(2).
std::expected<CpuList, std::error_code> run_on_cpus(const CpuList& cpus);

}  // namespace rnbd
