#include "daemon/attributes/values.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cerrno>
#include <charconv>

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
    if (text.starts_with("gid:")) {
        in6_addr gid{};
        const std::string address(text.substr(4));
        const bool good = ::inet_pton(AF_INET6, address.c_str(), &gid) == 1;
        return std::unexpected(good ? ENODEV : EINVAL);
    }
    if (!text.starts_with("ip:")) return std::unexpected(EINVAL);
    const std::string whole(text.substr(3));
    const std::string address = whole.substr(0, whole.find('%'));
    char canonical[INET6_ADDRSTRLEN];
    in_addr four{};
    in6_addr six{};
    if (::inet_pton(AF_INET, whole.c_str(), &four) == 1) {
        return ::inet_ntop(AF_INET, &four, canonical, sizeof canonical);
    }
    if (::inet_pton(AF_INET6, address.c_str(), &six) != 1) return std::unexpected(EINVAL);
    return ::inet_ntop(AF_INET6, &six, canonical, sizeof canonical) + whole.substr(address.size());
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
