#include "rnbd-server/export_commands.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/control/arguments.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

using nlohmann::json;
using Need = ControlArguments::Need;

constexpr rtrs::Duration shut_out_default = std::chrono::seconds(60);
constexpr rtrs::Duration shut_out_max = std::chrono::hours(24);

// An export as the configuration has it: the same words, rules and messages.
std::expected<ServerConfig::Export, ControlFailure> parse_export(const json& description) {
    auto parsed = ServerConfig::parse_export(
        description.dump(-1, ' ', false, json::error_handler_t::replace), "export");
    if (parsed) return std::move(*parsed);
    return command_failed(ControlError::bad_arguments, config_errors_text(parsed.error()));
}

void answer(ControlReply& reply, const ControlFailure& failure) {
    reply.fail(failure.code, failure.message);
}

void exports(const ServerState& state, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string name = arguments.text("export");
    if (const auto failure = arguments.failure()) return answer(reply, *failure);
    json document = server_exports(state, name);
    if (!name.empty() && document["exports"].empty()) {
        return reply.fail(ControlError::not_found, "there is no export " + name);
    }
    reply.succeed(document);
}

void add(Target& target, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const json description = arguments.object("export", Need::required);
    if (const auto failure = arguments.failure()) return answer(reply, *failure);
    auto config = parse_export(description);
    if (!config) return answer(reply, config.error());
    const std::string name = config->name;
    if (const auto added = target.add_export(std::move(*config)); !added) {
        return answer(reply, added.error());
    }
    const Volume& volume = *target.find(name);
    reply.succeed(
        {{"export", name}, {"state", to_string(volume.state())}, {"reason", volume.reason()}});
}

void remove(Target& target, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string name = arguments.text("export", Need::required);
    const bool force = arguments.flag("force");
    if (const auto failure = arguments.failure()) return answer(reply, *failure);
    // The reply outlives this call: it is given when the export is gone.
    const auto later = std::make_shared<ControlReply>(std::move(reply));
    const auto removed = target.remove_export(
        name, force ? Target::Removal::by_force : Target::Removal::if_unused,
        [later, name](std::error_code last_flush) {
            if (last_flush) {
                return later->fail(ControlError::failed,
                                   name + ": removed, but " + Target::loss_of(last_flush));
            }
            later->succeed({{"export", name}, {"state", "removed"}, {"reason", ""}});
        });
    if (!removed) answer(*later, removed.error());
}

ControlError code_of(std::error_code error) {
    if (error == std::errc::device_or_resource_busy) return ControlError::busy;
    if (error == std::errc::invalid_argument) return ControlError::bad_arguments;
    return ControlError::failed;
}

void resize(Target& target, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string name = arguments.text("export", Need::required);
    const auto size = arguments.number("size_bytes");
    const bool shrink = arguments.flag("shrink");
    if (const auto failure = arguments.failure()) return answer(reply, *failure);
    Volume* const volume = target.find(name);
    if (volume == nullptr) return answer(reply, target.why_none(name));
    const auto later = std::make_shared<ControlReply>(std::move(reply));
    volume->resize(size, shrink ? Volume::Shrink::cut : Volume::Shrink::refused,
                   [later, name](std::expected<std::uint64_t, StorageError> size_bytes) {
                       if (!size_bytes) {
                           later->fail(code_of(size_bytes.error().code), size_bytes.error().text);
                           return;
                       }
                       later->succeed({{"export", name}, {"size_bytes", *size_bytes}});
                   });
}

void evict(Target& target, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string name = arguments.text("export", Need::required);
    const std::string session = arguments.text("session", Need::required);
    const rtrs::Duration out = arguments.seconds("out_s", shut_out_default, shut_out_max);
    if (const auto failure = arguments.failure()) return answer(reply, *failure);
    if (const auto evicted = target.evict(name, session, out); !evicted) {
        return answer(reply, evicted.error());
    }
    reply.succeed({{"export", name}, {"session", session}, {"out_s", rtrs::in_seconds(out)}});
}

void drain(Target& target, const ServerState& state, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string wanted = arguments.text("set");
    const bool take_away = arguments.flag("evict");
    if (const auto failure = arguments.failure()) return answer(reply, *failure);
    if (!wanted.empty() && wanted != "on" && wanted != "off") {
        return reply.fail(ControlError::bad_arguments, "set: expected on or off");
    }
    if (take_away && wanted != "on") {
        return reply.fail(ControlError::bad_arguments, "evict: expected it together with set: on");
    }
    if (!wanted.empty()) {
        target.set_draining(wanted == "on" ? Target::Draining::on : Target::Draining::off);
    }
    if (take_away) target.evict_all();
    reply.succeed(server_drain(state));
}

}  // namespace

void add_export_commands(ControlServer& control, Target& target, const ServerState& state) {
    control.add_command("exports", [&state](const json& arguments, ControlReply reply) {
        exports(state, arguments, std::move(reply));
    });
    // The sessions are being ended: what there is stays as it is until it was flushed.
    const auto refused = [&state](ControlReply& reply) {
        if (state.stopping) reply.fail(ControlError::stopping, "rnbd-server is stopping");
        return state.stopping.has_value();
    };
    using Command = void (*)(Target&, const json&, ControlReply);
    for (const auto& [name, command] : {std::pair<const char*, Command>{"export_add", add},
                                        {"export_remove", remove},
                                        {"export_resize", resize},
                                        {"export_evict", evict}}) {
        control.add_command(
            name, [&target, refused, run = command](const json& arguments, ControlReply reply) {
                if (!refused(reply)) run(target, arguments, std::move(reply));
            });
    }
    control.add_command("drain",
                        [&target, &state, refused](const json& arguments, ControlReply reply) {
                            if (!refused(reply)) drain(target, state, arguments, std::move(reply));
                        });
}

}  // namespace rnbd
