#include "rnbd-server/known_media.h"

#include <algorithm>

namespace rnbd {

bool KnownMedia::is_another(Writers::Id volume, std::uint64_t medium) const noexcept {
    return std::ranges::any_of(known_, [&](const One& one) {
        return one.volume == volume && one.medium != 0 && medium != 0 && one.medium != medium;
    });
}

void KnownMedia::opened(Writers::Id volume, std::uint64_t medium) {
    forget(volume);
    if (known_.size() == known_max) known_.erase(known_.begin());
    known_.push_back({volume, medium});
}

void KnownMedia::forget(Writers::Id volume) noexcept {
    std::erase_if(known_, [&](const One& one) { return one.volume == volume; });
}

}  // namespace rnbd
