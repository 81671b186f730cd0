// What rnbdctl does: command line in, text or JSON and an exit code out.
#pragma once

#include <iosfwd>
#include <string>

namespace rnbd {

// Where the daemons' control sockets are when nothing else is said.
struct DefaultSockets {
    std::string server = "/run/rnbd/server.ctl";
    std::string client = "/run/rnbd/client.ctl";
};

// Returns the exit code (exit_codes.h). Never throws.
int run_rnbdctl(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                const DefaultSockets& sockets = {});

}  // namespace rnbd
