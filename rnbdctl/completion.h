// Completion for shells. The scripts call rnbdctl (`rnbdctl complete WORD...`), which walks the
// command tree and asks the daemons for names. So what completion offers is what rnbdctl accepts.
#pragma once

#include <string>
#include <vector>

#include "rnbdctl/run.h"

namespace rnbd {

// Empty if the shell is not known.
std::string completion_script(const std::string& shell);

// words: the words after the program's name up to the cursor; the last one is to be completed and
// may be empty. A daemon that does not answer within a second contributes no names.
std::vector<std::string> complete(const std::vector<std::string>& words,
                                  const DefaultSockets& sockets);

}  // namespace rnbd
