// Asks a daemon over its control socket and waits for the answer: for rnbdctl.
//
// THREAD: any; blocks the caller.
#pragma once

#include <sys/types.h>

#include <expected>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/control/protocol.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// Why there is no result.
struct ControlCallFailure {
    enum class Kind : std::uint8_t {
        absent,       // there is no such socket
        away,         // nobody listens, or the daemon went away before it answered
        unreachable,  // no permission, or not the socket of a daemon
        refused,      // the daemon answered with an error: `failure`
        timed_out,    // no answer in time; the request may still be carried out
        nonsense,     // the answer is not of this protocol or version
    };
    Kind kind = Kind::unreachable;
    // One line. For refused: the daemon's message.
    std::string message;
    // refused: the daemon's code, if this version knows it.
    std::optional<ControlError> code{};
    // refused: the errno, if the command was about an attribute; else 0.
    int error_number = 0;
    // What the user may do about it, if more is known than the kind says; else empty.
    std::string advice{};
};

struct ControlCallOptions {
    std::string socket_path;
    // How long to wait for the whole answer; after that the call fails with timed_out.
    rtrs::Duration timeout = std::chrono::seconds(60);
    // Not null: gets the user that the daemon runs as, if there was one.
    uid_t* daemon_user = nullptr;
};

// Returns the member `result` of the answer.
// ERRORS: see ControlCallFailure::Kind.
std::expected<nlohmann::json, ControlCallFailure> control_call(const ControlCallOptions& options,
                                                               std::string_view command,
                                                               const nlohmann::json& arguments);

}  // namespace rnbd
