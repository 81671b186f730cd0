// Which machine this is, as a number: the same after a reboot, another one on another machine.
#pragma once

#include <cstdint>

namespace rnbd {

// Of /etc/machine-id (machine-id(5)) and the host name, since cloned machines share the first.
// 0: there is no machine id, so nothing can be said.
std::uint64_t machine_identity();

}  // namespace rnbd
