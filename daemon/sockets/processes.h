// Which process is in the way, for people.
//
// THREAD: any.
#pragma once

#include <sys/types.h>

#include <string>

namespace rnbd {

// Who listens at this Unix socket, by connecting to it; 0: nobody, or it is not known.
pid_t socket_listener(const std::string& path);

}  // namespace rnbd
