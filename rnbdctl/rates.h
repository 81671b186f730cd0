// What happened per second between two documents of `stats`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace rnbd {

enum class RateOrder : std::uint8_t { as_given, busiest_first };

// A document like `after`, with rates in place of counters and the time between as since_s. What is
// in one of them only, or has counted backwards, is left out. elapsed_s > 0.
nlohmann::json rates(const nlohmann::json& before, const nlohmann::json& after, double elapsed_s,
                     RateOrder order);

}  // namespace rnbd
