// The version of the programs.
#pragma once

namespace rnbd {

// "0.1.0"
const char* version() noexcept;

}  // namespace rnbd
