#include "daemon/machine_identity.h"

#include <unistd.h>

#include <fstream>
#include <string>

namespace rnbd {
namespace {

// FNV-1a, 64 bits: names few machines apart; nothing depends on it being hard to guess.
std::uint64_t hash(const std::string& text) {
    std::uint64_t value = 0xcbf29ce484222325u;
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return value;
}

}  // namespace

std::uint64_t machine_identity() {
    std::string id;
    std::ifstream("/etc/machine-id") >> id;
    if (id.empty()) return 0;
    char name[256] = {};
    if (::gethostname(name, sizeof name - 1) != 0) return 0;
    const std::uint64_t value = hash(id + "\n" + name);
    return value == 0 ? 1 : value;
}

}  // namespace rnbd
