// Which files root may write where a daemon, which need not be root's, has named them.
#pragma once

#include <string>

namespace rnbd {

// Who besides root could change what the path leads to, now or while it is used: the first part of
// it that belongs to somebody else or that others may write, also behind links. Empty: nobody. What
// is there in a folder with the sticky bit is its owner's; what is not may be made by others.
std::string changed_by_others(const std::string& path);

}  // namespace rnbd
