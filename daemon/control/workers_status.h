// How the workers of a daemon are doing, for its status.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "rtrs/reactor.h"

namespace rnbd {

// workers[] of docs/reference/control-protocol.md. first: any of them.
nlohmann::json describe_workers(rtrs::Reactor& first);

}  // namespace rnbd
