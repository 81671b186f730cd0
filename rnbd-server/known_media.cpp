#include "rnbd-server/known_media.h"

#include <algorithm>

namespace rnbd {

bool KnownMedia::is_another(const Volume& volume, std::uint64_t medium) const noexcept {
    return std::ranges::any_of(known_, [&](const One& one) {
        return one.is(volume) && one.medium != 0 && medium != 0 && one.medium != medium;
    });
}

void KnownMedia::opened(const Volume& volume, std::uint64_t medium) {
    forget(volume);
    if (known_.size() == known_max) known_.erase(known_.begin());
    known_.push_back({volume.name, volume.writer, medium});
}

void KnownMedia::forget(const Volume& volume) noexcept {
    std::erase_if(known_, [&](const One& one) { return one.is(volume); });
}

}  // namespace rnbd
