// Names that were given to files, durable.
//
// THREAD: any one. Blocks.
#pragma once

#include <string>
#include <system_error>

namespace rnbd {

// The folder that the path's last part is in. ERRORS: of opening or synchronizing it.
std::error_code synchronize_folder(const std::string& path);

}  // namespace rnbd
