// Durations in the form that documents and metrics use.
#pragma once

#include <chrono>

#include "rtrs/base/instant.h"

namespace rtrs {

constexpr double in_seconds(Duration duration) noexcept {
    return std::chrono::duration<double>(duration).count();
}

}  // namespace rtrs
