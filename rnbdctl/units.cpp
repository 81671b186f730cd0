#include "rnbdctl/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace rnbd {

std::string size_words(std::uint64_t bytes) {
    static constexpr std::array<const char*, 7> units{"B",   "KiB", "MiB", "GiB",
                                                      "TiB", "PiB", "EiB"};
    std::size_t unit = 0;
    while (unit + 1 < units.size() && bytes >> (10 * (unit + 1)) != 0) ++unit;
    const std::uint64_t factor = 1ull << (10 * unit);
    if (bytes % factor == 0) return fmt::format("{} {}", bytes / factor, units[unit]);
    return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(factor),
                       units[unit]);
}

std::string age_words(double seconds) {
    // Also swallows NaN; beyond ten thousand years nobody asks.
    const double bounded = seconds > 0 ? std::min(seconds, 3e11) : 0;
    const auto total = static_cast<std::uint64_t>(bounded);
    const std::uint64_t days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
    if (days > 0) return fmt::format("{}d {}h", days, hours);
    if (hours > 0) return fmt::format("{}h {}m", hours, minutes);
    if (minutes > 0) return fmt::format("{}m {}s", minutes, total % 60);
    return fmt::format("{}s", total);
}

std::string short_age_words(double seconds) {
    if (!(seconds > 0)) return "0 ms";
    if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
    if (seconds < 60) return fmt::format("{:.1f} s", seconds);
    return age_words(seconds);
}

std::string setting_words(double seconds) {
    // Beyond ten thousand years nobody sets anything.
    if (!(seconds > 0)) return "0 s";
    if (seconds < 1) return fmt::format("{:.9g} ms", seconds * 1000);
    if (seconds < 60) return fmt::format("{:.9g} s", seconds);
    const auto whole = static_cast<std::uint64_t>(std::min(seconds, 3e11));
    const std::uint64_t minutes = whole / 60;
    std::string text;
    const auto add = [&](std::uint64_t count, const char* unit) {
        if (count > 0) text += fmt::format("{}{}{}", text.empty() ? "" : " ", count, unit);
    };
    add(minutes / 1440, "d");
    add(minutes / 60 % 24, "h");
    add(minutes % 60, "m");
    // Nanoseconds beside minutes are noise.
    const double rest = seconds < 3e11 ? seconds - static_cast<double>(minutes * 60) : 0;
    if (const double rounded = std::round(rest * 1e6) / 1e6; rounded > 0)
        text += fmt::format(" {:.8g}s", rounded);
    return text;
}

std::string latency_words(double microseconds) {
    if (!(microseconds > 0)) return "-";
    if (microseconds < 1000) return fmt::format("{:.0f} us", microseconds);
    if (microseconds < 1'000'000) return fmt::format("{:.1f} ms", microseconds / 1000);
    return fmt::format("{:.1f} s", microseconds / 1'000'000);
}

std::optional<rtrs::Duration> time_of(std::string_view text) noexcept {
    static constexpr struct {
        std::string_view name;
        double nanoseconds;
    } units[] = {{"", 1e9},     {"us", 1e3},   {"ms", 1e6},       {"s", 1e9},
                 {"min", 60e9}, {"h", 3600e9}, {"d", 24 * 3600e9}};
    constexpr double nanoseconds_end = 9e18;
    // No sign, and neither "inf" nor "nan".
    if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
    double number = 0;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    for (const auto& unit : units) {
        if (unit.name != text) continue;
        const double nanoseconds = number * unit.nanoseconds;
        if (!(nanoseconds < nanoseconds_end)) return std::nullopt;
        return rtrs::Duration(std::llround(nanoseconds));
    }
    return std::nullopt;
}

std::string count_words(std::uint64_t count) {
    const std::string digits = std::to_string(count);
    std::string result;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > 0 && (digits.size() - i) % 3 == 0) result += ',';
        result += digits[i];
    }
    return result;
}

std::string terminal_text(std::string_view text) {
    std::string result;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
        if (byte < 0x20 || byte == 0x7f) {
            result += fmt::format("\\x{:02x}", byte);
        } else if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
            // U+0080 to U+009F: a terminal takes U+009B for ESC [.
            result += fmt::format("\\x{:02x}\\x{:02x}", byte, next);
            ++i;
        } else {
            result += text[i];
        }
    }
    return result;
}

}  // namespace rnbd
