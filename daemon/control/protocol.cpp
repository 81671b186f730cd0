#include "daemon/control/protocol.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace rnbd {

using nlohmann::json;

namespace {

constexpr std::array<std::pair<ControlError, const char*>, 10> error_words{{
    {ControlError::bad_request, "bad_request"},
    {ControlError::unknown_command, "unknown_command"},
    {ControlError::bad_arguments, "bad_arguments"},
    {ControlError::not_found, "not_found"},
    {ControlError::exists, "exists"},
    {ControlError::busy, "busy"},
    {ControlError::denied, "denied"},
    {ControlError::timed_out, "timed_out"},
    {ControlError::stopping, "stopping"},
    {ControlError::failed, "failed"},
}};

// Deepest nesting, strings skipped. The JSON library copies and writes by recursion, so depth is
// bounded before it sees the text.
std::size_t depth_of(std::string_view line) noexcept {
    std::size_t depth = 0;
    std::size_t deepest = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            deepest = std::max(deepest, ++depth);
        } else if ((c == ']' || c == '}') && depth > 0) {
            --depth;
        }
    }
    return deepest;
}

std::string write(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json answer(bool ok) {
    return {{"schema", control_schema}, {"version", control_version}, {"ok", ok}};
}

std::unexpected<ControlFailure> bad_request(std::string text) {
    return command_failed(ControlError::bad_request, std::move(text));
}

}  // namespace

std::unexpected<ControlFailure> command_failed(ControlError code, std::string message) {
    return std::unexpected(ControlFailure{code, std::move(message)});
}

ControlRequest::ControlRequest() = default;
ControlRequest::ControlRequest(ControlRequest&&) noexcept = default;
ControlRequest& ControlRequest::operator=(ControlRequest&&) noexcept = default;
ControlRequest::~ControlRequest() = default;

const char* to_string(ControlError error) noexcept {
    for (const auto& [code, word] : error_words)
        if (code == error) return word;
    return "";
}

std::optional<ControlError> control_error_from(std::string_view word) noexcept {
    for (const auto& [code, candidate] : error_words)
        if (candidate == word) return code;
    return std::nullopt;
}

std::expected<ControlRequest, ControlFailure> parse_control_request(std::string_view line) {
    if (depth_of(line) > control_depth_max)
        return bad_request(fmt::format("nested deeper than {} levels", control_depth_max));
    json parsed = json::parse(line, nullptr, false);
    if (!parsed.is_object()) return bad_request("expected a JSON object on one line");
    for (const auto& [key, value] : parsed.items())
        if (key != "command" && key != "arguments")
            return bad_request("expected the members command and arguments, nothing else");
    const auto command = parsed.find("command");
    if (command == parsed.end() || !command->is_string())
        return bad_request("expected the member command, a string");
    ControlRequest request;
    request.command = command->get<std::string>();
    request.arguments = std::make_unique<json>(json::object());
    if (const auto arguments = parsed.find("arguments"); arguments != parsed.end()) {
        if (!arguments->is_object()) return bad_request("expected arguments to be an object");
        *request.arguments = std::move(*arguments);
    }
    return request;
}

std::string emit_control_request(std::string_view command, const json& arguments) {
    return write({{"command", command}, {"arguments", arguments}});
}

std::string emit_control_result(const json& result) {
    return emit_control_result_text(write(result));
}

std::string emit_control_result_text(std::string_view result) {
    std::string line = write(answer(true));
    line.back() = ',';  // the members go on
    constexpr std::string_view key = R"("result":)";
    // And the newline that is to come: what is long is not copied for it.
    line.reserve(line.size() + key.size() + result.size() + 2);
    return line.append(key).append(result).append(1, '}');
}

std::string emit_control_failure(const ControlFailure& failure) {
    json document = answer(false);
    document["error"] = {{"code", to_string(failure.code)}, {"message", failure.message}};
    if (failure.error_number != 0) document["error"]["errno"] = failure.error_number;
    return write(document);
}

}  // namespace rnbd
