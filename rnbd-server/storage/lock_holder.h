// Finds out who has locked a file by flock(2).
#pragma once

#include <string>

namespace rnbd {

// "rnbd-server (pid 4711)" or "another export of this server, through a link". "another program,
// maybe rnbd-server (pid 4711)" if the open files of that process may not be seen, or are too many
// to look at. Empty if /proc/locks does not say, or if the process that it names does not have the
// lock any more, for example because it has got the number of a former process.
// THREAD: any.
std::string lock_holder(int fd);

}  // namespace rnbd
