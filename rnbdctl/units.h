// Numbers in the forms that people read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rtrs/base/instant.h"

namespace rnbd {

// "0 B", "512 B", "4 KiB", "1.5 GiB": at most one decimal, none if it is exact.
std::string size_words(std::uint64_t bytes);
// "0s", "4s", "3m 20s", "5h 1m", "2d 3h": the two largest units. Negative counts as 0.
std::string age_words(double seconds);
// "420 ms", "1.2 s", then as age_words(): for times that are about to be over. Negative counts as
// 0.
std::string short_age_words(double seconds);
// "1.25 s", "500 ms", "1h 59s", "1m 30.5s": a time that somebody has set, without rounding.
std::string setting_words(double seconds);
// "950 us", "1.2 ms".
std::string latency_words(double microseconds);
// Parses "90s", "1.5min", "200ms": units as in the configurations; without a unit, seconds.
std::optional<rtrs::Duration> time_of(std::string_view text) noexcept;
// 1234567 -> "1,234,567"
std::string count_words(std::uint64_t count);
// Makes text from elsewhere safe for a terminal: control characters are written as \xNN.
std::string terminal_text(std::string_view text);

}  // namespace rnbd
