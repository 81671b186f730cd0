// The lines of the control socket (docs/reference/control-protocol.md): parse and emit, no I/O.
//
//   > {"command": "status", "arguments": {}}
//   < {"schema": "rnbd-control", "version": 1, "ok": true, "result": {...}}
//   < {"schema": "rnbd-control", "version": 1, "ok": false, "error": {"code": "...", "message":
//   "..."}}
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace rnbd {

constexpr std::string_view control_schema = "rnbd-control";
constexpr int control_version = 1;
// Longest request with its newline. Answers have no limit at the server, this one at the client.
constexpr std::size_t control_request_bytes_max = 1u << 20;
constexpr std::size_t control_answer_bytes_max = 64u << 20;
// Nesting of a request beyond which it is refused.
constexpr std::size_t control_depth_max = 32;

// Why a command failed; rnbdctl's exit code follows from it.
enum class ControlError : std::uint8_t {
    bad_request,      // not a request of this protocol
    unknown_command,  // this daemon has no such command
    bad_arguments,    // argument absent, of another type or out of range; the message says which
    not_found,        // no such session, device, volume or export
    exists,           // the name or address is taken
    busy,             // in use; the message says by whom
    denied,           // the server refused access
    timed_out,        // no answer in time; it may still happen
    stopping,         // the daemon is about to end
    failed,           // anything else
};
const char* to_string(ControlError error) noexcept;
std::optional<ControlError> control_error_from(std::string_view word) noexcept;

struct ControlFailure {
    ControlError code = ControlError::failed;
    // One line for people: what happened and, where there is something, what to do.
    std::string message;
    // Of attributes: the errno that the kernel's would give; 0: none.
    int error_number = 0;
};

struct ControlRequest {
    ControlRequest();
    ControlRequest(ControlRequest&&) noexcept;
    ControlRequest& operator=(ControlRequest&&) noexcept;
    ~ControlRequest();
    std::string command;
    // Always an object.
    std::unique_ptr<nlohmann::json> arguments;
};

// line: without newline. ERRORS: bad_request. Never throws, whatever the line is.
std::expected<ControlRequest, ControlFailure> parse_control_request(std::string_view line);
// One line without newline. Text that is not UTF-8 is replaced.
std::string emit_control_request(std::string_view command, const nlohmann::json& arguments);
std::string emit_control_result(const nlohmann::json& result);
std::string emit_control_failure(const ControlFailure& failure);

}  // namespace rnbd
