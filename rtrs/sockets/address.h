// Socket addresses from and to text: "10.0.0.1:1235", "[::1]:1235", "[fe80::1%eth0]:1235".
#pragma once

#include <sys/socket.h>

#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace rtrs {

struct Address {
    sockaddr_storage storage{};
    socklen_t bytes = 0;
    const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
    sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
    int family() const noexcept { return storage.ss_family; }
};

// "HOST:PORT", the port 0..65535. ERRORS: EINVAL.
std::expected<Address, std::error_code> parse_address(std::string_view text);
// "HOST", IPv6 with or without brackets; the port is 0. ERRORS: EINVAL.
std::expected<Address, std::error_code> parse_host(std::string_view text);
// Where a connection goes to, and from which local address if one is given.
struct Route {
    std::optional<Address> source;
    Address destination;
};
// source: as for parse_host(), or empty; destination: as for parse_address(). ERRORS: EINVAL, also
// if the two are of different families.
std::expected<Route, std::error_code> parse_route(std::string_view source,
                                                  std::string_view destination);
// ASSUMES: IPv4 or IPv6.
Address copy_of(const sockaddr& address) noexcept;
// An IPv4 address that is mapped into IPv6 is printed as IPv4.
std::string to_text(const Address& address);
std::string to_text(const sockaddr& address);
// The addresses of a socket; empty if it has none.
std::string local_address(int fd);
std::string remote_address(int fd);

}  // namespace rtrs
