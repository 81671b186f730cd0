#include "daemon/attributes/values.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>

#include "rtrs/base/host.h"

namespace rnbd {
namespace {

constexpr std::string_view white_space = " \t\n\v\f\r";

std::string_view without_newline(std::string_view text) noexcept {
    if (text.ends_with('\n')) text.remove_suffix(1);
    return text;
}

// All digits, and what they say.
template <typename Number>
std::expected<Number, int> parse_digits(std::string_view digits, int base) noexcept {
    Number value{};
    const char* const end = digits.data() + digits.size();
    const auto [rest, error] = std::from_chars(digits.data(), end, value, base);
    if (rest != end || error == std::errc::invalid_argument) return std::unexpected(EINVAL);
    if (error == std::errc::result_out_of_range) return std::unexpected(ERANGE);
    return value;
}

// A numeric address in its canonical form. "%eth0" of a link-local one stays.
std::expected<std::string, int> parse_host(std::string_view text) {
    using rtrs::IpVersion;
    if (text.starts_with("gid:")) {
        const bool good = rtrs::canonical_host(text.substr(4), IpVersion::six).has_value();
        return std::unexpected(good ? ENODEV : EINVAL);
    }
    if (!text.starts_with("ip:")) return std::unexpected(EINVAL);
    const std::string_view whole = text.substr(3);
    const std::string_view address = whole.substr(0, whole.find('%'));
    if (auto four = rtrs::canonical_host(whole, IpVersion::four)) return std::move(*four);
    auto six = rtrs::canonical_host(address, IpVersion::six);
    if (!six) return std::unexpected(EINVAL);
    return six->append(whole.substr(address.size()));
}

}  // namespace

bool attribute_text_is(std::string_view text, std::string_view word) noexcept {
    return without_newline(text) == word;
}

std::string_view stripped(std::string_view text) noexcept {
    const auto first = text.find_first_not_of(white_space);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(white_space) - first + 1);
}

std::expected<int, int> parse_attribute_int(std::string_view text) noexcept {
    std::string_view digits = without_newline(text);
    if (digits.starts_with('+')) {
        digits.remove_prefix(1);
        if (digits.starts_with('-')) return std::unexpected(EINVAL);
    }
    return parse_digits<int>(digits, 10);
}

std::expected<std::uint64_t, int> parse_attribute_unsigned(std::string_view text) noexcept {
    std::string_view digits = without_newline(text);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int base = 10;
    if (digits.starts_with("0x") || digits.starts_with("0X")) {
        digits.remove_prefix(2);
        base = 16;
    } else if (digits.size() > 1 && digits.starts_with('0')) {
        base = 8;
    }
    return parse_digits<std::uint64_t>(digits, base);
}

std::string attribute_address(std::string_view host) { return fmt::format("ip:{}", host); }

std::expected<AttributeAddress, int> parse_attribute_path(std::string_view text) {
    text = text.substr(0, text.find('\n'));
    auto cut = text.find(',');
    if (cut == std::string_view::npos) cut = text.find('@');
    AttributeAddress address;
    if (cut != std::string_view::npos) {
        auto source = parse_host(text.substr(0, cut));
        if (!source) return std::unexpected(source.error());
        address.source = std::move(*source);
        text.remove_prefix(cut + 1);
    }
    auto destination = parse_host(text);
    if (!destination) return std::unexpected(destination.error());
    address.destination = std::move(*destination);
    return address;
}

std::string usage_of_one(std::string_view name) {
    return fmt::format("Usage: echo 1 > {}\n", name);
}

}  // namespace rnbd
