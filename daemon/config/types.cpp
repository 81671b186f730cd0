#include "daemon/config/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>

#include "rtrs/base/host.h"

namespace rnbd {

namespace {

// A whole number followed by a unit of the table.
struct Unit {
    std::string_view name;
    std::uint64_t factor;
};

std::optional<std::uint64_t> parse_with_unit(std::string_view text, std::span<const Unit> units,
                                             std::uint64_t max) noexcept {
    std::uint64_t number = 0;
    const char* const text_end = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), text_end, number);
    if (error != std::errc{}) return std::nullopt;
    const std::string_view name(end, static_cast<std::size_t>(text_end - end));
    const auto unit = std::find_if(units.begin(), units.end(),
                                   [&](const Unit& candidate) { return candidate.name == name; });
    if (unit == units.end() || number > max / unit->factor) return std::nullopt;
    return number * unit->factor;
}

std::string size_text(std::uint64_t bytes) {
    static constexpr Unit units[] = {{"PiB", 1ull << 50},
                                     {"TiB", 1ull << 40},
                                     {"GiB", 1ull << 30},
                                     {"MiB", 1ull << 20},
                                     {"KiB", 1ull << 10}};
    for (const Unit& unit : units)
        if (bytes >= unit.factor && bytes % unit.factor == 0)
            return fmt::format("{}{}", bytes / unit.factor, unit.name);
    return std::to_string(bytes);
}

// In the largest unit that it is a whole number of, as parse_duration() takes it.
std::string duration_text(rtrs::Duration duration) {
    using namespace std::chrono;
    static constexpr struct {
        const char* name;
        rtrs::Duration unit;
    } units[] = {{"d", hours(24)},  {"h", hours(1)},         {"min", minutes(1)},
                 {"s", seconds(1)}, {"ms", milliseconds(1)}, {"us", microseconds(1)}};
    for (const auto& unit : units)
        if (duration >= unit.unit && duration % unit.unit == rtrs::Duration::zero())
            return fmt::format("{}{}", duration / unit.unit, unit.name);
    return "0s";
}

bool printable(std::string_view text) noexcept {
    return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string bounds_text(std::string_view what, const std::string& min, const std::string& max) {
    return fmt::format("{} from {} to {}", what, min, max);
}

// An empty optional stands for the word.
ConfigType<std::optional<rtrs::Duration>> duration_or(std::string_view word, rtrs::Duration min,
                                                      rtrs::Duration max) {
    using Result = std::optional<std::optional<rtrs::Duration>>;
    const auto finite = config_duration(min, max);
    return {fmt::format("{}, or {}", finite.expected, word),
            [finite, word](std::string_view text) -> Result {
                if (text == word) return Result(std::in_place, std::nullopt);
                const auto value = finite.parse(text);
                if (!value) return std::nullopt;
                return Result(std::in_place, *value);
            },
            {std::string(word)}};
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) noexcept {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

std::optional<std::uint64_t> parse_size(std::string_view text) noexcept {
    static constexpr Unit units[] = {{"", 1},
                                     {"B", 1},
                                     {"KiB", 1ull << 10},
                                     {"MiB", 1ull << 20},
                                     {"GiB", 1ull << 30},
                                     {"TiB", 1ull << 40},
                                     {"PiB", 1ull << 50}};
    return parse_with_unit(text, units, std::numeric_limits<std::uint64_t>::max());
}

std::optional<rtrs::Duration> parse_duration(std::string_view text) noexcept {
    static constexpr std::uint64_t second = 1'000'000'000;
    static constexpr Unit units[] = {{"us", 1'000},        {"ms", 1'000'000},
                                     {"s", second},        {"min", 60 * second},
                                     {"h", 3600 * second}, {"d", 24 * 3600 * second}};
    const auto value =
        parse_with_unit(text, units, static_cast<std::uint64_t>(rtrs::Duration::max().count()));
    if (!value) return std::nullopt;
    return rtrs::Duration(static_cast<rtrs::Duration::rep>(*value));
}

std::optional<std::string> parse_address(std::string_view text, PortZero port_zero) {
    const auto parts = rtrs::split_host_port(text);
    if (!parts || (parts->port == 0 && port_zero == PortZero::refused)) return std::nullopt;
    const auto canonical = rtrs::canonical_host(parts->host, parts->version());
    if (!canonical) return std::nullopt;
    return rtrs::join_host_port(*canonical, parts->port);
}

bool addresses_overlap(std::string_view one, std::string_view other) noexcept {
    const auto port = [](std::string_view address) { return address.substr(address.rfind(':')); };
    const auto covers = [](std::string_view wide, std::string_view address) {
        return wide.starts_with("[::]:") ||
               (wide.starts_with("0.0.0.0:") && !address.starts_with('['));
    };
    return one != other && port(one) == port(other) && port(one) != ":0" &&
           (covers(one, other) || covers(other, one));
}

std::optional<PathAddresses> parse_path_addresses(std::string_view text) {
    PathAddresses path;
    if (const auto at = text.find('@'); at != std::string_view::npos) {
        std::string_view host = text.substr(0, at);
        // Brackets are not needed, there is no port; but they are natural beside those of HOST.
        if (host.contains(':')) host = rtrs::without_brackets(host);
        auto source = config_host().parse(host);
        if (!source) return std::nullopt;
        path.source = std::move(*source);
        text = text.substr(at + 1);
    }
    auto destination = parse_address(text, PortZero::refused);
    if (!destination) return std::nullopt;
    path.destination = std::move(*destination);
    const bool six = path.destination.starts_with('[');
    if (!path.source.empty() && six != (path.source.find(':') != std::string::npos))
        return std::nullopt;
    return path;
}

std::string config_join_words(const std::vector<std::string>& words) {
    std::string result;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (i > 0) result += i + 1 == words.size() ? " or " : ", ";
        // YAML reads a bare null as "no value".
        result += words[i] == "null" ? "'null' (in quotes)" : words[i];
    }
    return result;
}

ConfigType<std::string> config_text(std::size_t bytes_min, std::size_t bytes_max) {
    return {fmt::format("a text of {} to {} bytes", bytes_min, bytes_max),
            [=](std::string_view text) -> std::optional<std::string> {
                if (text.size() < bytes_min || text.size() > bytes_max) return std::nullopt;
                return std::string(text);
            }};
}

ConfigType<std::string> config_path(std::size_t bytes_max) {
    return {fmt::format(
                "an absolute path of at most {} bytes that has no \"..\" and does not end in '/'",
                bytes_max),
            [=](std::string_view text) -> std::optional<std::string> {
                const bool fits = text.size() >= 2 && text.size() <= bytes_max;
                if (!fits || text.front() != '/' || text.back() == '/') return std::nullopt;
                if (fmt::format("{}/", text).find("/../") != std::string::npos) return std::nullopt;
                if (std::any_of(text.begin(), text.end(),
                                [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
                    return std::nullopt;
                return std::string(text);
            }};
}

ConfigType<std::string> config_session_name() {
    return {"a session name of 1 to 254 printable ASCII characters without space, '/' and '.'",
            [](std::string_view text) -> std::optional<std::string> {
                if (text.empty() || text.size() > 254 || !printable(text)) return std::nullopt;
                if (text.find_first_of("/.") != std::string_view::npos) return std::nullopt;
                return std::string(text);
            }};
}

ConfigType<std::string> config_allowed_session() {
    return {
        "the name of one session, for there are no patterns: 1 to 254 printable ASCII characters "
        "without space, '/', '.' and '*'",
        [one = config_session_name()](std::string_view text) -> std::optional<std::string> {
            if (text.contains('*')) return std::nullopt;
            return one.parse(text);
        }};
}

ConfigType<std::string> config_volume_name() {
    return {"a name of 1 to 254 printable ASCII characters without space, \"..\" and leading '/'",
            [](std::string_view text) -> std::optional<std::string> {
                if (text.empty() || text.size() > 254 || !printable(text)) return std::nullopt;
                if (text.front() == '/' || text.find("..") != std::string_view::npos)
                    return std::nullopt;
                return std::string(text);
            }};
}

ConfigType<bool> config_bool() { return config_enum<bool>({{"true", true}, {"false", false}}); }

ConfigType<std::uint64_t> config_size(std::uint64_t bytes_min, std::uint64_t bytes_max) {
    return {bounds_text("a size in bytes or with KiB, MiB, GiB, TiB, PiB", size_text(bytes_min),
                        size_text(bytes_max)),
            [=](std::string_view text) -> std::optional<std::uint64_t> {
                const auto value = parse_size(text);
                if (!value || *value < bytes_min || *value > bytes_max) return std::nullopt;
                return value;
            }};
}

ConfigType<rtrs::Duration> config_duration(rtrs::Duration min, rtrs::Duration max) {
    return {
        bounds_text("a duration with us, ms, s, min, h, d", duration_text(min), duration_text(max)),
        [=](std::string_view text) -> std::optional<rtrs::Duration> {
            const auto value = parse_duration(text);
            if (!value || *value < min || *value > max) return std::nullopt;
            return value;
        }};
}

ConfigType<std::optional<rtrs::Duration>> config_duration_or_forever(rtrs::Duration min,
                                                                     rtrs::Duration max) {
    return duration_or("forever", min, max);
}

ConfigType<std::optional<rtrs::Duration>> config_duration_or_never(rtrs::Duration min,
                                                                   rtrs::Duration max) {
    return duration_or("never", min, max);
}

ConfigType<std::optional<std::uint32_t>> config_reconnect_attempts() {
    using Result = std::optional<std::optional<std::uint32_t>>;
    return {fmt::format("an integer from 0 to {}, or forever (-1)", reconnect_attempts_max),
            [](std::string_view text) -> Result {
                if (text == "forever") return Result(std::in_place, std::nullopt);
                const auto value = parse_integer(text);
                if (!value || *value < -1 || *value > reconnect_attempts_max) return std::nullopt;
                if (*value == -1) return Result(std::in_place, std::nullopt);
                return Result(std::in_place, static_cast<std::uint32_t>(*value));
            },
            {"forever"}};
}

ConfigType<std::string> config_address(PortZero port_zero) {
    return {"a numeric address and port, IPv4:PORT or [IPv6]:PORT",
            [=](std::string_view text) { return parse_address(text, port_zero); }};
}

ConfigType<std::string> config_host() {
    return {"a numeric IPv4 or IPv6 address without port",
            [](std::string_view text) -> std::optional<std::string> {
                return rtrs::canonical_host(
                    text, text.contains(':') ? rtrs::IpVersion::six : rtrs::IpVersion::four);
            }};
}

ConfigType<AddressRange> config_address_range() {
    return {"a numeric address, or a network as ADDRESS/BITS with no bits set beyond BITS",
            [](std::string_view text) { return AddressRange::parse(text); }};
}

}  // namespace rnbd
