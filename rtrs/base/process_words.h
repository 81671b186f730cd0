// Describes a process to people. THREAD: any.
#pragma once

#include <sys/types.h>

#include <string>

namespace rtrs {

// "rnbd-server (pid 4711)"; "pid 4711" if its name cannot be read.
std::string process_words(pid_t pid);
// The name alone; empty if it cannot be read.
std::string process_name(pid_t pid);

}  // namespace rtrs
