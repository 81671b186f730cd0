// Times to come, in the form that status documents use.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "rtrs/base/seconds.h"

namespace rnbd {

// null: there is no such time; 0: it is past.
inline nlohmann::json seconds_left(const std::optional<rtrs::Instant>& until, rtrs::Instant now) {
    if (!until) return nullptr;
    return rtrs::in_seconds(std::max(*until - now, rtrs::Duration::zero()));
}

}  // namespace rnbd
