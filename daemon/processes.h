// Which process is in the way, for people.
//
// THREAD: any.
#pragma once

#include <sys/types.h>

#include <string>

namespace rnbd {

// "rnbd-server (pid 4711)"; "pid 4711" if its name cannot be read.
std::string process_words(pid_t pid);
// The name alone, empty if it cannot be read.
std::string process_name(pid_t pid);
// Who listens at this Unix socket, by connecting to it; 0: nobody, or it is not known.
pid_t socket_listener(const std::string& path);

}  // namespace rnbd
