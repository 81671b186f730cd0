// A block of IP addresses ("10.0.0.0/8") and the question whether a peer is in it.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rnbd {

class AddressRange {
  public:
    // A default range contains no address, not even an IPv4 address.
    AddressRange() noexcept = default;

    // "10.0.0.7", "10.0.0.0/8", "fd00::/16". Empty: not an address, prefix too long, or bits set
    // beyond the prefix.
    static std::optional<AddressRange> parse(std::string_view text) noexcept;

    // host: numeric, without port; IPv6 with or without brackets. IPv4 inside IPv6
    // ("::ffff:10.0.0.1", as a dual-stack listener reports it) counts as IPv4. False if host is not
    // an address.
    bool contains(std::string_view host) const noexcept;
    // "10.0.0.0/8"; a single address has no prefix.
    std::string to_string() const;

    // Compares the bits.
    auto operator<=>(const AddressRange&) const noexcept = default;

  private:
    // IPv4 is kept as IPv4-mapped IPv6, so that one comparison serves both.
    using Address = std::array<std::uint8_t, 16>;
    static std::optional<Address> parse_address(std::string_view text) noexcept;
    static bool is_mapped(const Address& address) noexcept;

    Address network_{};
    // Leading bits that must agree, 0..128; beyond 128: nothing agrees.
    std::uint16_t prefix_bits_ = 129;
};

}  // namespace rnbd
