// How a client session spreads its requests over its paths (docs: rnbd-client.yaml(5)).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace rtrs {

// Which of the usable paths takes a request. The formulas are in rtrs/core/path_selector.h.
enum class PathPolicy : std::uint8_t {
    round_robin,   // one after the other
    min_inflight,  // the one with the fewest unanswered requests
    min_latency,   // the one with the shortest newest heartbeat round trip
    service_time,  // the one that is expected to answer first, judging by its recent answers
};

// Standby paths carry requests only while no preferred path is usable.
enum class PathPriority : std::uint8_t { prefer, standby };

inline constexpr std::array<std::pair<PathPolicy, std::string_view>, 4> path_policy_names{{
    {PathPolicy::round_robin, "round-robin"},
    {PathPolicy::min_inflight, "min-inflight"},
    {PathPolicy::min_latency, "min-latency"},
    {PathPolicy::service_time, "service-time"},
}};

inline constexpr std::array<std::pair<PathPriority, std::string_view>, 2> path_priority_names{{
    {PathPriority::prefer, "prefer"},
    {PathPriority::standby, "standby"},
}};

constexpr std::string_view to_string(PathPolicy policy) noexcept {
    for (const auto& [value, name] : path_policy_names)
        if (value == policy) return name;
    return "?";
}

constexpr std::string_view to_string(PathPriority priority) noexcept {
    for (const auto& [value, name] : path_priority_names)
        if (value == priority) return name;
    return "?";
}

// Takes exactly one of the names; returns empty for anything else.
constexpr std::optional<PathPolicy> parse_path_policy(std::string_view text) noexcept {
    for (const auto& [value, name] : path_policy_names)
        if (name == text) return value;
    return std::nullopt;
}

constexpr std::optional<PathPriority> parse_path_priority(std::string_view text) noexcept {
    for (const auto& [value, name] : path_priority_names)
        if (name == text) return value;
    return std::nullopt;
}

}  // namespace rtrs
