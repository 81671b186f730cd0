// Sends a request to the daemons, and shows the answers.
#pragma once

#include <iosfwd>
#include <string>

#include "rnbdctl/exit_codes.h"
#include "rnbdctl/request.h"

namespace rnbd {

// The line that every failure prints with --json: {"schema", "version", "ok": false, "error":
// {...}}. code: as in the control protocol; error_number: 0 is none.
std::string failure_line(const std::string& code, const std::string& message, int error_number = 0);

// Progress of long operations is written to err.
// THREAD: any; blocks the caller.
CtlExit ask(const Request& request, std::ostream& out, std::ostream& err);

}  // namespace rnbd
