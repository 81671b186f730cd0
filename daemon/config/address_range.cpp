#include "daemon/config/address_range.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "rtrs/base/host.h"

namespace rnbd {

namespace {

constexpr std::array<std::uint8_t, 12> mapped_prefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr unsigned mapped_prefix_bits = 96;

bool bit(const std::array<std::uint8_t, 16>& address, unsigned index) noexcept {
    return ((address[index / 8] >> (7 - index % 8)) & 1) != 0;
}

}  // namespace

bool AddressRange::is_mapped(const Address& address) noexcept {
    return std::equal(mapped_prefix.begin(), mapped_prefix.end(), address.begin());
}

std::optional<AddressRange::Address> AddressRange::parse_address(std::string_view text) noexcept {
    // inet_pton wants a terminated string; no address is longer than this.
    char terminated[INET6_ADDRSTRLEN];
    if (text.empty() || text.size() >= sizeof terminated ||
        text.find('\0') != std::string_view::npos)
        return std::nullopt;
    std::memcpy(terminated, text.data(), text.size());
    terminated[text.size()] = '\0';
    Address address{};
    if (::inet_pton(AF_INET6, terminated, address.data()) == 1) return address;
    std::copy(mapped_prefix.begin(), mapped_prefix.end(), address.begin());
    if (::inet_pton(AF_INET, terminated, address.data() + mapped_prefix.size()) == 1)
        return address;
    return std::nullopt;
}

std::optional<AddressRange> AddressRange::parse(std::string_view text) noexcept {
    const auto slash = text.find('/');
    const std::string_view host = text.substr(0, slash);
    const auto address = parse_address(host);
    if (!address) return std::nullopt;
    const bool four = host.find(':') == std::string_view::npos;
    unsigned bits = four ? 32 : 128;
    if (slash != std::string_view::npos) {
        const std::string_view digits = text.substr(slash + 1);
        unsigned given = 0;
        const auto [end, error] =
            std::from_chars(digits.data(), digits.data() + digits.size(), given);
        if (error != std::errc{} || end != digits.data() + digits.size() || given > bits)
            return std::nullopt;
        bits = given;
    }
    AddressRange range;
    range.network_ = *address;
    range.prefix_bits_ = static_cast<std::uint16_t>(four ? bits + mapped_prefix_bits : bits);
    for (unsigned index = range.prefix_bits_; index < 128; ++index)
        if (bit(range.network_, index)) return std::nullopt;
    return range;
}

bool AddressRange::contains(std::string_view host) const noexcept {
    host = rtrs::without_brackets(host);
    // A link-local peer carries its interface ("fe80::1%eth0"); the range is about the address.
    host = host.substr(0, host.find('%'));
    const auto address = parse_address(host);
    if (!address || prefix_bits_ > 128) return false;
    // "::/0" means every IPv6 address; whoever wants IPv4 too says "0.0.0.0/0".
    if (is_mapped(*address) && prefix_bits_ < mapped_prefix_bits) return false;
    for (unsigned index = 0; index < prefix_bits_; ++index)
        if (bit(*address, index) != bit(network_, index)) return false;
    return true;
}

std::string AddressRange::to_string() const {
    if (prefix_bits_ > 128) return "none";
    const bool four = is_mapped(network_) && prefix_bits_ >= mapped_prefix_bits;
    char text[INET6_ADDRSTRLEN] = "";
    if (four)
        ::inet_ntop(AF_INET, network_.data() + mapped_prefix.size(), text, sizeof text);
    else
        ::inet_ntop(AF_INET6, network_.data(), text, sizeof text);
    if (prefix_bits_ == 128) return text;
    return std::string(text) + "/" +
           std::to_string(four ? prefix_bits_ - mapped_prefix_bits : prefix_bits_);
}

}  // namespace rnbd
