// rnbdctl's exit codes: the table that scripts rely on (also in --help).
#pragma once

#include <string>

#include "daemon/control/client.h"

namespace rnbd {

enum class CtlExit : int {
    ok = 0,
    failed = 1,       // the daemon tried, and it did not work
    usage = 2,        // wrong command line, or arguments that the daemon refuses
    unreachable = 3,  // no daemon at the socket, or no permission to use it
    not_found = 4,    // no such device, session, volume or export
    conflict = 5,     // the name is taken, or the object is in use
    denied = 6,       // the server refuses this session
    timed_out = 7,    // no answer in time; the command may still take effect
    nonsense = 8,     // the answer is not understood: another version
};

CtlExit exit_for(const ControlCallFailure& failure) noexcept;
// What the user can do about an exit code; empty if there is nothing to say, or if it depends on
// the command (Request::absent_hint, Request::in_use_hint).
std::string hint_for(CtlExit exit);
// The table as lines of text, for --help.
std::string exit_code_table();

}  // namespace rnbd
