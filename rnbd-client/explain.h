// Why is this I/O waiting? Every unanswered request, with what it waits for (upcoming.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rnbd-client/status.h"

namespace rnbd {

// The document of the command `explain`. Null if there is no such device.
nlohmann::json client_explain(const ClientState& state, const std::string& device);

}  // namespace rnbd
