// Answers the question why an I/O is waiting: lists every unanswered request of a device, with what
// it waits for (rnbd-client/next_event.h).
//
// OWNER: the caller owns the document; nothing is kept.
// THREAD: the reactor's (rtrs/reactor.h).
// ERRORS: none; the document is null if the device does not exist.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "rnbd-client/status.h"

namespace rnbd {

// The document of the command `explain`. Null if no device has this name.
nlohmann::json client_explain(const ClientState& state, const std::string& device);

}  // namespace rnbd
