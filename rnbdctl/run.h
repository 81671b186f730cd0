// The program rnbdctl: takes a command line, prints text or JSON, and returns an exit code.
#pragma once

#include <iosfwd>
#include <string>

namespace rnbd {

// The default paths of the daemons' control sockets.
struct DefaultSockets {
    std::string server = "/run/rnbd/server.ctl";
    std::string client = "/run/rnbd/client.ctl";
};

// Returns the exit code (exit_codes.h). Never throws.
int run_rnbdctl(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                const DefaultSockets& sockets = {});

}  // namespace rnbd
