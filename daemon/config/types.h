// Scalars of a configuration: their form and their meaning. For a ConfigMap
// (daemon/config/reader.h), and for text from elsewhere.
//
// THREAD: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/address_range.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// The greatest limit that a setting may put on the failed attempts to connect a path.
constexpr std::uint32_t reconnect_attempts_max = 1'000'000;

// The form that a scalar must have, and the function that parses it.
template <typename T>
struct ConfigType {
    // Continues "expected ": "an integer from 1 to 64".
    std::string expected;
    std::function<std::optional<T>(std::string_view)> parse;
    // Every legal word, if there is a list of them.
    std::vector<std::string> words{};
};

// --- scalars as text; strict: no spaces, no signs except for negative integers, no overflow ---

std::optional<std::int64_t> parse_integer(std::string_view text) noexcept;
// Bytes: "4096", "512B", "64KiB", "8MiB", "1GiB", "1TiB", "1PiB". Decimal units are refused.
std::optional<std::uint64_t> parse_size(std::string_view text) noexcept;
// "100us", "200ms", "5s", "1min", "2h", "1d".
std::optional<rtrs::Duration> parse_duration(std::string_view text) noexcept;
// "10.0.0.1:1235", "[fe80::1]:1235": a numeric host. Returns the canonical form.
enum class PortZero : std::uint8_t { refused, allowed };
std::optional<std::string> parse_address(std::string_view text, PortZero port_zero);
// Whether two sockets cannot listen on both addresses though they differ: one address includes the
// port of the other, since [::] stands for every address and 0.0.0.0 for every one of IPv4. Both
// canonical.
bool addresses_overlap(std::string_view one, std::string_view other) noexcept;
// "SOURCE@HOST:PORT" or "HOST:PORT", numeric hosts of one family; the source may be in brackets,
// too.
struct PathAddresses {
    std::string source;       // "HOST", canonical, or empty
    std::string destination;  // "HOST:PORT", canonical
};
std::optional<PathAddresses> parse_path_addresses(std::string_view text);

// --- types for ConfigMap and ConfigValue ---

// min..max bytes, any text.
ConfigType<std::string> config_text(std::size_t bytes_min, std::size_t bytes_max);
// An absolute path without ".." components that does not end in a slash, at most bytes_max bytes.
ConfigType<std::string> config_path(std::size_t bytes_max);
// RTRS session name: 1..254 bytes, printable ASCII without space, '/' and '.'.
ConfigType<std::string> config_session_name();
// The same in a rule that allows a session, where users would take '*' for a pattern.
ConfigType<std::string> config_allowed_session();
// Export or device name: 1..254 bytes, printable ASCII without space, no "..", no leading '/'.
ConfigType<std::string> config_volume_name();
ConfigType<bool> config_bool();
ConfigType<std::uint64_t> config_size(std::uint64_t bytes_min, std::uint64_t bytes_max);
ConfigType<rtrs::Duration> config_duration(rtrs::Duration min, rtrs::Duration max);
// "forever" is an empty optional.
ConfigType<std::optional<rtrs::Duration>> config_duration_or_forever(rtrs::Duration min,
                                                                     rtrs::Duration max);
// The same for "never".
ConfigType<std::optional<rtrs::Duration>> config_duration_or_never(rtrs::Duration min,
                                                                   rtrs::Duration max);
// 0..reconnect_attempts_max; "forever" and -1 are an empty optional.
ConfigType<std::optional<std::uint32_t>> config_reconnect_attempts();
ConfigType<std::string> config_address(PortZero port_zero);
// A numeric host without port.
ConfigType<std::string> config_host();
// "10.0.0.7", "10.0.0.0/8", "fd00::/16".
ConfigType<AddressRange> config_address_range();

template <typename T>
ConfigType<T> config_integer(T min, T max) {
    return {"an integer from " + std::to_string(min) + " to " + std::to_string(max),
            [min, max](std::string_view text) -> std::optional<T> {
                const auto value = parse_integer(text);
                if (!value || *value < static_cast<std::int64_t>(min) ||
                    *value > static_cast<std::int64_t>(max))
                    return std::nullopt;
                return static_cast<T>(*value);
            }};
}

std::string config_join_words(const std::vector<std::string>& words);

template <typename T>
ConfigType<T> config_enum(std::vector<std::pair<std::string, T>> choices) {
    std::vector<std::string> words;
    for (const auto& choice : choices) words.push_back(choice.first);
    std::string expected = config_join_words(words);
    auto parse = [choices = std::move(choices)](std::string_view text) -> std::optional<T> {
        for (const auto& [word, value] : choices)
            if (word == text) return value;
        return std::nullopt;
    };
    return {std::move(expected), std::move(parse), std::move(words)};
}

}  // namespace rnbd
