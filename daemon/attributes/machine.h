// What attributes say about the machine.
#pragma once

#include <cstddef>
#include <string>

namespace rnbd {

// The network interface that has an address. host: numeric, without brackets. Empty if none has it.
std::string interface_of(const std::string& host);

// How many processors this machine may ever have ("possible" in the kernel's terms). At least 1.
std::size_t possible_processors();

}  // namespace rnbd
