// Asks the daemons what a request says, and shows the answers.
#pragma once

#include <iosfwd>
#include <string>

#include "rnbdctl/exit_codes.h"
#include "rnbdctl/request.h"

namespace rnbd {

// Every failure with --json, as a line: {"schema", "version", "ok": false, "error": {...}}. code:
// as in the control protocol; error_number: 0 is none.
std::string failure_line(const std::string& code, const std::string& message, int error_number = 0);

// Progress of long work goes to err. THREAD: any; blocks the caller.
CtlExit ask(const Request& request, std::ostream& out, std::ostream& err);

}  // namespace rnbd
