// Durations as documents and metrics have them.
#pragma once

#include <chrono>

#include "rtrs/base/instant.h"

namespace rtrs {

constexpr double in_seconds(Duration duration) noexcept {
    return std::chrono::duration<double>(duration).count();
}

}  // namespace rtrs
