// Formats durations for the reasons that people read: "12 ms", "1.4 s", "60 s".
#pragma once

#include <string>

#include "rtrs/base/instant.h"

namespace rtrs {

inline std::string duration_text(Duration duration) {
    using namespace std::chrono;
    if (duration < seconds(1)) return std::to_string(duration / milliseconds(1)) + " ms";
    const auto tenths = duration / milliseconds(100);
    std::string text = std::to_string(tenths / 10);
    if (tenths % 10 != 0) text += "." + std::to_string(tenths % 10);
    return text + " s";
}

}  // namespace rtrs
