// How many permits of a session each of its sharers may hold, so that a sharer whose requests hang
// does not keep out the others.
//
// A single sharer may hold all permits. Of several, each may hold no more than it leaves free: the
// first one that hangs has half of the permits, the next one half of the rest, and so on. The
// caller makes sure that each sharer can always hold what one request needs. Pure.
#pragma once

#include <cstdint>

namespace rnbd {

// of: all permits of the session. others_hold: the permits that all other sharers hold together.
// sharers: their number, including this one.
constexpr std::uint32_t fair_share(std::uint32_t of, std::uint32_t others_hold,
                                   std::uint32_t sharers) noexcept {
    if (sharers < 2) return of;
    return others_hold < of ? (of - others_hold) / 2 : 0;
}

}  // namespace rnbd
