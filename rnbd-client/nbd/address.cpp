#include "rnbd-client/nbd/address.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>

namespace rnbd {

std::expected<NbdAddress, std::string> NbdAddress::parse(std::string_view text) {
    const auto bad = [&](std::string_view expected) {
        return std::unexpected(fmt::format("\"{}\": expected {}", text, expected));
    };
    NbdAddress address;
    if (text.starts_with("unix:")) {
        address.path = text.substr(5);
        if (address.path.empty()) return bad("a path after unix:");
        if (address.path.size() >= sizeof(sockaddr_un::sun_path)) {
            return bad(
                fmt::format("a path of at most {} bytes", sizeof(sockaddr_un::sun_path) - 1));
        }
        if (address.path.find('\0') != std::string::npos) return bad("a path without NUL");
        return address;
    }
    if (!text.starts_with("tcp:")) return bad("unix:PATH or tcp:HOST:PORT");
    const std::string_view rest = text.substr(4);
    const std::size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos || colon == 0) return bad("tcp:HOST:PORT");
    std::string_view host = rest.substr(0, colon);
    const std::string_view port = rest.substr(colon + 1);
    if (host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    } else if (host.find(':') != std::string_view::npos) {
        return bad("an IPv6 address in brackets");
    }
    const bool digits = !port.empty() && port.size() <= 5 &&
                        std::ranges::all_of(port, [](char c) { return c >= '0' && c <= '9'; });
    if (host.empty() || !digits || std::stoi(std::string(port)) > 65535) {
        return bad("tcp:HOST:PORT with a port of 0..65535");
    }
    address.transport = NbdTransport::tcp;
    address.host = host;
    address.port = port;
    return address;
}

std::string NbdAddress::text() const {
    if (transport == NbdTransport::unix_socket) return "unix:" + path;
    const bool brackets = host.find(':') != std::string::npos;
    return fmt::format("tcp:{}{}{}:{}", brackets ? "[" : "", host, brackets ? "]" : "", port);
}

}  // namespace rnbd
