// Makes the names of files durable.
//
// THREAD: any. Blocks.
#pragma once

#include <string>
#include <system_error>

namespace rnbd {

// Synchronizes the folder that contains the last part of the path.
// ERRORS: those of opening or synchronizing the folder.
std::error_code synchronize_folder(const std::string& path);

}  // namespace rnbd
