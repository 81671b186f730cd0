// Who a session is to its server, beside its name: the machine and the life of its program. A
// server tells a client that comes back from another one of the same name by them.
#pragma once

#include <cstdint>

namespace rnbd {

// Which machine this is: the same after a reboot, another one on another machine. Of
// /etc/machine-id (machine-id(5)) and the host name, since cloned machines share the first.
// 0: there is no machine id, so nothing can be said.
std::uint64_t machine_identity();

// Grows from one start of a program to the next: milliseconds of the system's clock.
std::uint64_t session_life();

}  // namespace rnbd
