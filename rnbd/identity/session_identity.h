// What identifies a session to its server besides its name: the machine, and the life of its
// program. By them a server distinguishes a client that comes back from another client that has the
// same name.
#pragma once

#include <cstdint>

namespace rnbd {

// Identifies this machine: the value is the same after a reboot and differs between machines. It is
// made of /etc/machine-id (machine-id(5)) and the host name, since cloned machines share the
// machine id. 0: there is no machine id, so the machine cannot be identified.
std::uint64_t machine_identity();

// Identifies the life of a program: the system clock in milliseconds. It grows from one start of
// the program to the next.
std::uint64_t session_life();

}  // namespace rnbd
