// How much a daemon logs.
#pragma once

#include <cstdint>

namespace rnbd {

// critical: the daemon ends because of it; it is always logged. error: someone must act. warning:
// it has recovered. info: changes of state. debug: per message.
enum class LogLevel : std::uint8_t { debug, info, warning, error, critical };

}  // namespace rnbd
