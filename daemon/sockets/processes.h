// Finds the process that uses an address, for messages to people.
//
// THREAD: any.
#pragma once

#include <sys/types.h>

#include <string>

namespace rnbd {

// The process that listens at this Unix socket; found by connecting to it. 0: none, or not known.
pid_t socket_listener(const std::string& path);

}  // namespace rnbd
