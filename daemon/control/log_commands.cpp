#include "daemon/control/log_commands.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/config/common.h"
#include "daemon/control/arguments.h"
#include "daemon/log/log.h"

namespace rnbd {

using nlohmann::json;

namespace {

const char* to_word(LogLevel level) noexcept {
    switch (level) {
        case LogLevel::debug:
            return "debug";
        case LogLevel::info:
            return "info";
        case LogLevel::warning:
            return "warning";
        case LogLevel::error:
            return "error";
        case LogLevel::critical:
            return "critical";
    }
    return "?";
}

json document(const std::string& daemon) {
    json areas = json::array();
    for (const LogArea& area : log_areas()) {
        areas.push_back({{"name", area.name}, {"level", to_word(area.level)}});
    }
    return {{"daemon", daemon}, {"areas", std::move(areas)}};
}

void log(const std::string& daemon, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const auto level =
        arguments.word("level", config_log_level().parse, config_log_level().expected);
    const std::string area = arguments.text("area");
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    if (!level && !area.empty()) {
        return reply.fail(ControlError::bad_arguments, "area: expected it together with level");
    }
    if (!level) return reply.succeed(document(daemon));
    if (area.empty()) {
        set_log_level(*level);
    } else if (!set_log_level(*level, area)) {
        return reply.fail(ControlError::not_found,
                          fmt::format("nothing is logged as {}: \"rnbdctl log\" lists the areas",
                                      printable(area)));
    }
    reply.succeed(document(daemon));
}

}  // namespace

void add_log_command(ControlServer& control, std::string daemon) {
    control.add_command("log", [daemon = std::move(daemon)](const json& given, ControlReply reply) {
        log(daemon, given, std::move(reply));
    });
}

}  // namespace rnbd
