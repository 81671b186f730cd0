// Who has a file locked by flock(2).
#pragma once

#include <string>

namespace rnbd {

// "rnbd-server (pid 4711)", "another export of this server, through a link"; empty if /proc/locks
// does not tell it, or who it names is no more. THREAD: any.
std::string lock_holder(int fd);

}  // namespace rnbd
