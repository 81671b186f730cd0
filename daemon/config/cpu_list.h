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

// The numbers of processors are below this.
constexpr std::size_t cpus_max = 1024;
// Empty: no preference.
using CpuList = std::bitset<cpus_max>;

// Numbers and ranges in any order, at least one; spaces are not allowed.
std::optional<CpuList> parse_cpu_list(std::string_view text) noexcept;
// Ascending, in ranges; "" if empty.
std::string to_string(const CpuList& cpus);

// From now on the calling thread, and the threads that it starts, run on these processors only.
// Returns those of the processors that exist and that this process may use. On a machine with
// several memory nodes, the thread allocates from now on in the memory of these processors.
// ASSUMES: cpus is not empty.
// ERRORS: EINVAL if no usable processor is left; those of sched_setaffinity(2).
std::expected<CpuList, std::error_code> run_on_cpus(const CpuList& cpus);

}  // namespace rnbd
