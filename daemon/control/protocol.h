// The lines of the control socket (docs/reference/control-protocol.md): parse and emit, no I/O, no
// state.
//
// OWNER: the caller owns all values. THREAD: any.
// ERRORS: parse_control_request() returns bad_request; nothing else here fails.
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
// The longest request, including its newline.
constexpr std::size_t control_request_bytes_max = 1u << 20;
// The longest answer that the client accepts. The server does not limit its answers.
constexpr std::size_t control_answer_bytes_max = 64u << 20;
// A request that is nested deeper than this is refused.
constexpr std::size_t control_depth_max = 32;

// Why a command failed; rnbdctl's exit code follows from it.
enum class ControlError : std::uint8_t {
    bad_request,      // not a request of this protocol
    unknown_command,  // this daemon has no such command
    bad_arguments,    // an argument is absent, of the wrong type or out of range; see the message
    not_found,        // no such session, device, volume or export
    exists,           // the name or address is taken
    busy,             // in use; the message says by whom
    denied,           // the server refused access
    timed_out,        // no answer in time; the command may still take effect
    stopping,         // the daemon is about to end
    failed,           // anything else
};
// The word that stands for the error on the wire.
const char* to_string(ControlError error) noexcept;
// The error that the word stands for; none if the word is not known.
std::optional<ControlError> control_error_from(std::string_view word) noexcept;

struct ControlFailure {
    ControlError code = ControlError::failed;
    // One line for people: what happened and, if there is something to do, what.
    std::string message;
    // For attributes: the errno that the kernel's attribute would give; 0: none.
    int error_number = 0;
};
std::unexpected<ControlFailure> command_failed(ControlError code, std::string message);

struct ControlRequest {
    ControlRequest();
    ControlRequest(ControlRequest&&) noexcept;
    ControlRequest& operator=(ControlRequest&&) noexcept;
    ~ControlRequest();
    std::string command;
    // Always an object.
    std::unique_ptr<nlohmann::json> arguments;
};

// line: without its newline. Never throws, whatever the line is.
// ERRORS: bad_request.
std::expected<ControlRequest, ControlFailure> parse_control_request(std::string_view line);
// These return one line without newline. Bytes that are not UTF-8 are replaced.
std::string emit_control_request(std::string_view command, const nlohmann::json& arguments);
std::string emit_control_result(const nlohmann::json& result);
// result: JSON in valid UTF-8, without a newline.
std::string emit_control_result_text(std::string_view result);
std::string emit_control_failure(const ControlFailure& failure);

}  // namespace rnbd
