#include "rtrs/base/host.h"

#include <arpa/inet.h>

#include <charconv>

namespace rtrs {

std::optional<std::string> canonical_host(std::string_view host, IpVersion version) {
    const int family = version == IpVersion::four ? AF_INET : AF_INET6;
    const std::string terminated(host);
    unsigned char binary[sizeof(in6_addr)];
    char text[INET6_ADDRSTRLEN];
    if (host.contains('\0') || ::inet_pton(family, terminated.c_str(), binary) != 1 ||
        ::inet_ntop(family, binary, text, sizeof text) == nullptr)
        return std::nullopt;
    return text;
}

std::string_view without_brackets(std::string_view host) noexcept {
    const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
    return bracketed ? host.substr(1, host.size() - 2) : host;
}

std::optional<HostPort> split_host_port(std::string_view address) noexcept {
    const auto colon = address.rfind(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const std::string_view whole = address.substr(0, colon);
    HostPort parts{.host = without_brackets(whole)};
    parts.bracketed = parts.host.size() != whole.size();
    const char* const end = address.data() + address.size();
    const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, parts.port);
    if (error != std::errc{} || rest != end) return std::nullopt;
    return parts;
}

std::string join_host_port(std::string_view host, std::uint16_t port) {
    const bool six = host.contains(':');
    return std::string(six ? "[" : "").append(host) + (six ? "]:" : ":") + std::to_string(port);
}

std::string host_of(std::string_view address) {
    const auto colon = address.rfind(':');
    if (colon == std::string_view::npos) return std::string(address);
    return std::string(without_brackets(address.substr(0, colon)));
}

}  // namespace rtrs
