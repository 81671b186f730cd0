// What tells one boot of the machine from all others.
#pragma once

#include <string>

namespace rtrs {

// Empty: it cannot be read (as in a unit with ProcSubset=pid). THREAD: any.
std::string boot_id();

}  // namespace rtrs
