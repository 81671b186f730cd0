#include "daemon/attributes/machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace rnbd {
namespace {

bool is(const sockaddr& address, const std::string& host) {
    in_addr four{};
    in6_addr six{};
    if (address.sa_family == AF_INET && ::inet_pton(AF_INET, host.c_str(), &four) == 1) {
        const auto& mine = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
        return std::memcmp(&mine, &four, sizeof four) == 0;
    }
    const std::string unscoped = host.substr(0, host.find('%'));
    if (address.sa_family == AF_INET6 && ::inet_pton(AF_INET6, unscoped.c_str(), &six) == 1) {
        const auto& mine = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
        return std::memcmp(&mine, &six, sizeof six) == 0;
    }
    return false;
}

// 127.0.0.2 is nobody's by name, and the loopback's all the same.
bool covers(const ifaddrs& one, const std::string& host) {
    return one.ifa_name != nullptr && (one.ifa_flags & IFF_LOOPBACK) != 0 &&
           host.starts_with("127.");
}

}  // namespace

std::string interface_of(const std::string& host) {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return "";
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr) continue;
        if (is(*one->ifa_addr, host) || covers(*one, host)) return one->ifa_name;
    }
    return "";
}

std::size_t possible_processors() {
    const long count = ::sysconf(_SC_NPROCESSORS_CONF);
    return count > 0 ? static_cast<std::size_t>(count) : 1;
}

}  // namespace rnbd
