#include "rnbd/identity/session_identity.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "rtrs/base/fnv1a.h"

namespace rnbd {

std::uint64_t machine_identity() {
    std::string id;
    std::ifstream("/etc/machine-id") >> id;
    if (id.empty()) return 0;
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) != 0) return 0;
    const std::uint64_t value = rtrs::fnv1a(id + "\n" + name);
    return value == 0 ? 1 : value;
}

std::uint64_t session_life() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace rnbd
