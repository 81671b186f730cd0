// Who has a file locked by flock(2).
#pragma once

#include <string>

namespace rnbd {

// "rnbd-server (pid 4711)", "another export of this server, through a link"; "another program,
// maybe rnbd-server (pid 4711)" if what that one has open may not be seen, or is too much to be
// looked at; empty if /proc/locks does not tell it, or who it names has the lock no more, as a
// process that has got an old number.
// THREAD: any.
std::string lock_holder(int fd);

}  // namespace rnbd
