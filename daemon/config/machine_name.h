// The session name that is used where none is stated.
#pragma once

#include <string>

namespace rnbd {

// This machine's host name up to the first dot, since a session's name has no dots. Empty if the
// machine has none. THREAD: any.
std::string machine_name();

}  // namespace rnbd
