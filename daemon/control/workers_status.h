// The state of the workers of a daemon, for its status document.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "rtrs/reactor.h"

namespace rnbd {

// workers[] of docs/reference/control-protocol.md. first: any worker's reactor.
nlohmann::json describe_workers(rtrs::Reactor& first);

}  // namespace rnbd
