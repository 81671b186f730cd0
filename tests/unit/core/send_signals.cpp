#include "rtrs/core/send_signals.h"

#include <catch2/catch.hpp>

using namespace rtrs;

TEST_CASE("finished work never holds more slots than promised") {
    for (std::uint32_t works = 1; works <= 4; ++works) {
        SendSignals signals;
        std::uint32_t held = 0, most = 0;
        for (int i = 0; i < 1000; ++i) {
            held += works;
            most = std::max(most, held);
            if (signals.next(works) == Signal::completion) held = 0;
        }
        CHECK(most <= SendSignals::slots_held_max);
        CHECK(most >= 32);
    }
}
