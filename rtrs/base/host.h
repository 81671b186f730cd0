// The host of an address.
#pragma once

#include <string>

namespace rtrs {

// "HOST:PORT" or "[HOST]:PORT" without port and brackets.
inline std::string host_of(const std::string& address) {
    const auto colon = address.rfind(':');
    if (colon == std::string::npos) return address;
    std::string host = address.substr(0, colon);
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    }
    return host;
}

}  // namespace rtrs
