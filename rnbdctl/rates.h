// What happened per second between two documents of `stats`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>

namespace rnbd {

enum class RateOrder : std::uint8_t { as_given, busiest_first };

// Whether the process that gave the later of two documents, elapsed_s after the other, counts from
// zero since: it is another one, or was told to.
bool counts_anew(const nlohmann::json& after, double elapsed_s);

// A document like `after`, with what happened per second in place of counters, "per": "second", and
// the time between as since_s. What is in one of them only, or has counted backwards, is left out.
// Of more than `most` items only the first stay, and left_out is how many do not. elapsed_s > 0.
nlohmann::json rates(const nlohmann::json& before, const nlohmann::json& after, double elapsed_s,
                     RateOrder order, std::size_t most = std::numeric_limits<std::size_t>::max());

}  // namespace rnbd
