#include "rnbd-server/storage/cache_epoch.h"

#include <fstream>
#include <string>

namespace rnbd {
namespace {

// FNV-1a.
constexpr std::uint64_t fnv_offset = 0xcbf29ce484222325;
constexpr std::uint64_t fnv_prime = 0x100000001b3;

std::uint64_t usable(std::uint64_t hash) noexcept {
    return hash > epoch_without_cache ? hash : fnv_prime;
}

}  // namespace

std::uint64_t machine_epoch() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    if (!std::getline(file, id) || id.empty()) return 0;
    std::uint64_t hash = fnv_offset;
    for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * fnv_prime;
    return usable(hash);
}

std::uint64_t mix_epoch(std::uint64_t epoch, std::uint64_t value) noexcept {
    if (epoch == 0) return 0;
    for (int byte = 0; byte < 8; ++byte) {
        epoch = (epoch ^ (value >> (8 * byte) & 0xff)) * fnv_prime;
    }
    return usable(epoch);
}

}  // namespace rnbd
