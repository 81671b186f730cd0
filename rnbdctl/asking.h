// Asks the daemons what a wish says, and shows the answers.
#pragma once

#include <iosfwd>

#include "rnbdctl/exit_codes.h"
#include "rnbdctl/wish.h"

namespace rnbd {

// Progress of long work goes to err. THREAD: any; blocks the caller.
CtlExit ask(const Wish& wish, std::ostream& out, std::ostream& err);

}  // namespace rnbd
