// How much a daemon says.
#pragma once

#include <cstdint>

namespace rnbd {

// critical: it ends the daemon, and is always said; error: someone must act; warning: recovered;
// info: state changes; debug: per message.
enum class LogLevel : std::uint8_t { debug, info, warning, error, critical };

}  // namespace rnbd
