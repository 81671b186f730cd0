// IP addresses and ports as text: "10.0.0.1:1235", "[fe80::1]:1235". THREAD: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rtrs {

enum class IpVersion : std::uint8_t { four, six };

// The canonical form of a numeric host without brackets and "%INTERFACE". None: it is no such.
std::optional<std::string> canonical_host(std::string_view host, IpVersion version);
// "[HOST]" without its brackets; what has none stays as it is.
std::string_view without_brackets(std::string_view host) noexcept;

struct HostPort {
    std::string_view host;  // without brackets; any text
    bool bracketed = false;
    std::uint16_t port = 0;
    // Of a host that is numeric: without brackets the last group of IPv6 would pass for a port.
    IpVersion version() const noexcept { return bracketed ? IpVersion::six : IpVersion::four; }
};
// "HOST:PORT" or "[HOST]:PORT". None: there is no port 0..65535 after the last colon.
std::optional<HostPort> split_host_port(std::string_view address) noexcept;
// The reverse: a host with colons gets brackets.
std::string join_host_port(std::string_view host, std::uint16_t port);

// "HOST:PORT" or "[HOST]:PORT" without port and brackets, whatever its parts are.
std::string host_of(std::string_view address);

}  // namespace rtrs
