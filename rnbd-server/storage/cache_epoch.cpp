#include "rnbd-server/storage/cache_epoch.h"

#include <string>

#include "rtrs/base/boot_id.h"
#include "rtrs/base/fnv1a.h"

namespace rnbd {
namespace {

std::uint64_t usable(std::uint64_t hash) noexcept {
    return hash > epoch_without_cache ? hash : rtrs::fnv1a_prime;
}

}  // namespace

std::uint64_t machine_epoch() {
    const std::string id = rtrs::boot_id();
    return id.empty() ? 0 : usable(rtrs::fnv1a(id));
}

std::uint64_t mix_epoch(std::uint64_t epoch, std::uint64_t value) noexcept {
    if (epoch == 0) return 0;
    char bytes[sizeof value];
    for (std::size_t i = 0; i < sizeof value; ++i) {
        bytes[i] = static_cast<char>(value >> (8 * i) & 0xff);
    }
    return usable(rtrs::fnv1a({bytes, sizeof bytes}, epoch));
}

}  // namespace rnbd
