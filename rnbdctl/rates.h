// Rates: what happened per second between two documents of `stats`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>

namespace rnbd {

enum class RateOrder : std::uint8_t { as_given, busiest_first };

// Whether the counters of the later document, which came elapsed_s after the earlier one, were set
// to zero in between, because the process is another one or was told to reset them.
bool counts_anew(const nlohmann::json& after, double elapsed_s);

// A document like `after`, with rates per second instead of counters, "per": "second", and the time
// between the two as since_s. Items that are in one of them only, or that have counted backwards,
// are left out. If there are more than `most` items, only the first ones stay, and left_out is the
// number of the others. elapsed_s > 0.
nlohmann::json rates(const nlohmann::json& before, const nlohmann::json& after, double elapsed_s,
                     RateOrder order, std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace rnbd
