// Asks the daemons what a request says, and shows the answers.
#pragma once

#include <iosfwd>

#include "rnbdctl/exit_codes.h"
#include "rnbdctl/request.h"

namespace rnbd {

// Progress of long work goes to err. THREAD: any; blocks the caller.
CtlExit ask(const Request& request, std::ostream& out, std::ostream& err);

}  // namespace rnbd
