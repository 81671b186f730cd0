// How many permits one of those that share a session's may hold, so that requests that hang keep
// none of the others out.
//
// One alone may hold all. Of several, each may hold no more than what stays free with it: the first
// that hangs has half, the next half of the rest, and so on. One request each may always hold what
// it needs: that is for the caller to see to. Pure.
#pragma once

#include <cstdint>

namespace rnbd {

// of: all that the session has. others_hold: all of the others together. sharers: with this one.
constexpr std::uint32_t fair_share(std::uint32_t of, std::uint32_t others_hold,
                                   std::uint32_t sharers) noexcept {
    if (sharers < 2) return of;
    return others_hold < of ? (of - others_hold) / 2 : 0;
}

}  // namespace rnbd
