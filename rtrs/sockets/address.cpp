#include "rtrs/sockets/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>

#include "rtrs/base/error.h"
#include "rtrs/base/host.h"

namespace rtrs {
namespace {

const std::unexpected<std::error_code> invalid{from_errno(EINVAL)};

std::expected<Address, std::error_code> parse_ipv4(const std::string& host, std::uint16_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    if (inet_pton(AF_INET, host.c_str(), &in.sin_addr) != 1) return invalid;
    Address address;
    std::memcpy(&address.storage, &in, sizeof in);
    address.bytes = sizeof in;
    return address;
}

std::expected<Address, std::error_code> parse_ipv6(std::string host, std::uint16_t port) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    if (const auto percent = host.find('%'); percent != std::string::npos) {
        in.sin6_scope_id = if_nametoindex(host.c_str() + percent + 1);
        if (in.sin6_scope_id == 0) return invalid;
        host.resize(percent);
    }
    if (inet_pton(AF_INET6, host.c_str(), &in.sin6_addr) != 1) return invalid;
    Address address;
    std::memcpy(&address.storage, &in, sizeof in);
    address.bytes = sizeof in;
    return address;
}

std::string bracketed(const sockaddr_in6& in) {
    char host[INET6_ADDRSTRLEN];
    if (IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
        inet_ntop(AF_INET, in.sin6_addr.s6_addr + 12, host, sizeof host);
        return host;
    }
    inet_ntop(AF_INET6, &in.sin6_addr, host, sizeof host);
    std::string text = std::string("[") + host;
    char interface[IF_NAMESIZE];
    if (in.sin6_scope_id != 0 && if_indextoname(in.sin6_scope_id, interface) != nullptr) {
        text += std::string("%") + interface;
    }
    return text + "]";
}

template <typename GetName>
std::string name_of(int fd, GetName get_name) {
    Address address;
    address.bytes = sizeof address.storage;
    if (get_name(fd, address.get(), &address.bytes) != 0) return {};
    return to_text(address);
}

}  // namespace

std::expected<Address, std::error_code> parse_address(std::string_view text) {
    const auto parts = split_host_port(text);
    if (!parts) return invalid;
    const std::string host(parts->host);
    return parts->bracketed ? parse_ipv6(host, parts->port) : parse_ipv4(host, parts->port);
}

std::expected<Address, std::error_code> parse_host(std::string_view text) {
    const std::string host(without_brackets(text));
    const bool six = host.size() != text.size() || host.contains(':');
    return six ? parse_ipv6(host, 0) : parse_ipv4(host, 0);
}

std::expected<Route, std::error_code> parse_route(std::string_view source,
                                                  std::string_view destination) {
    const auto to = parse_address(destination);
    if (!to) return invalid;
    if (source.empty()) return Route{std::nullopt, *to};
    const auto from = parse_host(source);
    if (!from || from->family() != to->family()) return invalid;
    return Route{*from, *to};
}

Address copy_of(const sockaddr& address) noexcept {
    Address copy;
    copy.bytes = address.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(&copy.storage, &address, copy.bytes);
    return copy;
}

std::string to_text(const Address& address) {
    std::string host;
    std::uint16_t port = 0;
    if (address.family() == AF_INET) {
        sockaddr_in in;
        std::memcpy(&in, &address.storage, sizeof in);
        char buffer[INET_ADDRSTRLEN];
        host = inet_ntop(AF_INET, &in.sin_addr, buffer, sizeof buffer);
        port = ntohs(in.sin_port);
    } else if (address.family() == AF_INET6) {
        sockaddr_in6 in;
        std::memcpy(&in, &address.storage, sizeof in);
        host = bracketed(in);
        port = ntohs(in.sin6_port);
    } else {
        return {};
    }
    return host + ":" + std::to_string(port);
}

std::string to_text(const sockaddr& address) { return to_text(copy_of(address)); }

std::string local_address(int fd) { return name_of(fd, ::getsockname); }
std::string remote_address(int fd) { return name_of(fd, ::getpeername); }

}  // namespace rtrs
