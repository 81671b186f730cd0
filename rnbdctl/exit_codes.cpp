#include "rnbdctl/exit_codes.h"

#include <fmt/format.h>

#include <array>

namespace rnbd {

namespace {

struct Row {
    CtlExit exit;
    const char* meaning;
    const char* hint;
};

constexpr std::array<Row, 9> rows{{
    {CtlExit::ok, "success", ""},
    {CtlExit::failed, "the operation failed", ""},
    {CtlExit::usage, "wrong command line or arguments", "see rnbdctl --help"},
    {CtlExit::unreachable, "the daemon cannot be reached",
     "is it running? --socket says where it listens (`control` in its configuration)"},
    {CtlExit::not_found, "no such device, session, volume or export", ""},
    {CtlExit::conflict, "the name is taken, or it is in use", ""},
    {CtlExit::denied, "the server refused this session",
     "the export's allow rules in the server's configuration name who may open it"},
    {CtlExit::timed_out, "no answer in time; it may still happen", ""},
    {CtlExit::nonsense, "the daemon's answer is not understood",
     "use the rnbdctl of the daemon's version"},
}};

CtlExit exit_for(ControlError error) noexcept {
    switch (error) {
        case ControlError::bad_request:
            return CtlExit::nonsense;
        case ControlError::unknown_command:
        case ControlError::bad_arguments:
            return CtlExit::usage;
        case ControlError::not_found:
            return CtlExit::not_found;
        case ControlError::exists:
        case ControlError::busy:
            return CtlExit::conflict;
        case ControlError::denied:
            return CtlExit::denied;
        case ControlError::timed_out:
            return CtlExit::timed_out;
        case ControlError::stopping:
        case ControlError::failed:
            return CtlExit::failed;
    }
    return CtlExit::failed;
}

}  // namespace

CtlExit exit_for(const ControlCallFailure& failure) noexcept {
    switch (failure.kind) {
        case ControlCallFailure::Kind::absent:
        case ControlCallFailure::Kind::away:
        case ControlCallFailure::Kind::unreachable:
            return CtlExit::unreachable;
        case ControlCallFailure::Kind::timed_out:
            return CtlExit::timed_out;
        case ControlCallFailure::Kind::nonsense:
            return CtlExit::nonsense;
        case ControlCallFailure::Kind::refused:
            return failure.code ? exit_for(*failure.code) : CtlExit::failed;
    }
    return CtlExit::failed;
}

std::string hint_for(CtlExit exit) {
    for (const Row& row : rows)
        if (row.exit == exit) return row.hint;
    return "";
}

std::string exit_code_table() {
    std::string text = "Exit codes:\n";
    for (const Row& row : rows)
        text += fmt::format("  {}  {}\n", static_cast<int>(row.exit), row.meaning);
    return text;
}

}  // namespace rnbd
