// Socket addresses from and to text: "10.0.0.1:1235", "[::1]:1235", "[fe80::1%eth0]:1235".
#pragma once

#include <sys/socket.h>

#include <expected>
#include <string>
#include <string_view>
#include <system_error>

namespace rtrs::tcp {

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
// An IPv4 address that was mapped into IPv6 is printed as IPv4.
std::string to_text(const Address& address);
// Of a socket; empty if it has none.
std::string local_address(int fd);
std::string remote_address(int fd);

}  // namespace rtrs::tcp
