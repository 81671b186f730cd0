#include "rnbd-client/commands.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "daemon/control/arguments.h"
#include "daemon/log/log.h"
#include "rnbd-client/catalog_text.h"
#include "rnbd-client/client_session.h"
#include "rnbd-client/explain.h"
#include "rnbd-client/map_command.h"
#include "rnbd-client/path_commands.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

using nlohmann::json;
using Need = ControlArguments::Need;

constexpr std::string_view a_name = "a name";
// How long servers are waited for that are asked for what they know.
constexpr rtrs::Duration remote_default = std::chrono::seconds(1);
constexpr rtrs::Duration remote_max = std::chrono::hours(24);
constexpr rtrs::Duration discover_default = std::chrono::seconds(10);
constexpr rtrs::Duration discover_max = std::chrono::hours(24);
constexpr rtrs::Duration hold_limit_max = std::chrono::hours(24);

void unmap(Client& client, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string device = arguments.text("device", Need::required, a_name);
    const bool force = arguments.flag("force");
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    // The reply outlives this call: it is given when the device is gone.
    auto later = std::make_shared<ControlReply>(std::move(reply));
    client.unmap(device, force ? Client::Unmap::by_force : Client::Unmap::if_unused,
                 [later, device](const std::expected<Client::Gone, ControlFailure>& result) {
                     if (!result) return later->fail(result.error());
                     if (result->loss.empty()) return later->succeed({{"device", device}});
                     later->fail(ControlError::failed,
                                 device + " is unmapped, but " + result->loss);
                 });
}

void paths(Client& client, const ClientState& state, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string session = arguments.text("session", Need::optional, a_name);
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    const json document = client_paths(state, session);
    if (!document.is_null()) return reply.succeed(document);
    reply.fail(client.find_session(session).error());
}

void explain(const ClientState& state, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string device = arguments.text("device", Need::required, a_name);
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    const json document = client_explain(state, device);
    if (!document.is_null()) return reply.succeed(document);
    reply.fail(ControlError::not_found, "no device " + device + " is mapped");
}

std::string policy_words() {
    std::string names;
    for (const auto& [value, name] : rtrs::path_policy_names) {
        names.append(names.empty() ? "" : ", ").append(name);
    }
    return names;
}

void policy(Client& client, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string name = arguments.text("session", Need::required, a_name);
    const auto wanted = arguments.word("policy", rtrs::parse_path_policy, policy_words());
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    const auto session = client.find_session(name);
    if (!session) return reply.fail(session.error());
    rtrs::ClientSession& rtrs = (*session)->remote.rtrs();
    if (wanted && rtrs.status().policy != *wanted) {
        rtrs.set_policy(*wanted);
        logger("rnbd.client").info("{}: policy {}", name, rtrs::to_string(*wanted));
    }
    reply.succeed({{"session", name}, {"policy", rtrs::to_string(rtrs.status().policy)}});
}

// Of the session, or of what one of its devices waits for.
bool hold_is_over(const Client& client, Client::Session& session) {
    if (session.remote.rtrs().status().refusing >= rtrs::Refusing::after_hold_time) {
        return true;
    }
    return std::ranges::any_of(client.mappings(), [&](const auto& mapping) {
        return mapping->config().session == session.config.name &&
               mapping->volume().hold_time_over();
    });
}

// What holds in each session now.
json holding(const Client& client) {
    json sessions = json::array();
    const rtrs::Instant now = client.clock().now();
    for (const auto& [name, session] : client.sessions()) {
        if (session->closing) continue;
        const auto seconds = [](rtrs::Duration time) {
            return rtrs::in_seconds(std::max(time, rtrs::Duration::zero()));
        };
        const auto hold = session->remote.rtrs().options().longest_hold();
        const auto until = session->remote.rtrs().status().hold_until;
        sessions.push_back({{"name", name},
                            {"hold_time_s", hold ? json(seconds(*hold)) : json(nullptr)},
                            {"hold_left_s", until ? json(seconds(*until - now)) : json(nullptr)},
                            {"hold_is_over", hold_is_over(client, *session)}});
    }
    const auto limit = client.hold_limit();
    return {{"limit_s", limit ? json(rtrs::in_seconds(*limit)) : json(nullptr)},
            {"sessions", std::move(sessions)}};
}

void hold(Client& client, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const bool off = arguments.flag("off");
    const bool limited = given.contains("limit_s");
    const rtrs::Duration limit = arguments.seconds("limit_s", {}, hold_limit_max);
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    if (off && limited) {
        return reply.fail(ControlError::bad_arguments, "expected limit_s or off, not both");
    }
    if (limited) {
        logger("rnbd.client")
            .info("from now on what waits without a path fails after {} s",
                  rtrs::in_seconds(limit));
        client.limit_holding(limit);
    } else if (off && client.hold_limit()) {
        logger("rnbd.client").info("what waits without a path waits as configured again");
        client.limit_holding(std::nullopt);
    }
    reply.succeed(holding(client));
}

// The text of a large catalog takes a while, which is not to be the devices': a server may have
// given each export a name that takes several times its length to be written.
void answer_discover(rtrs::Reactor& reactor, const std::shared_ptr<ControlReply>& reply,
                     const std::string& server, const std::vector<CatalogEntry>& entries) {
    struct Answer {
        std::string server;
        std::vector<CatalogEntry> entries;
        std::string line;
        void write() { line = emit_control_result_text(catalog_text(server, entries)); }
    };
    const auto answer = std::make_shared<Answer>(Answer{server, entries, {}});
    if (reactor.offload([answer] { answer->write(); },
                        [answer, reply] { reply->succeed_with(std::move(answer->line)); })) {
        return;
    }
    answer->write();
    reply->succeed_with(std::move(answer->line));
}

void discover(Client& client, rtrs::Reactor& reactor, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const std::string server =
        arguments.text("server", Need::required, "a session's name or HOST:PORT");
    const ConfigType<std::string> name = config_session_name();
    const auto session = arguments.word("session", name.parse, name.expected);
    const rtrs::Duration timeout = arguments.seconds("timeout_s", discover_default, discover_max);
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    // The reply outlives this call: it is given when the server has answered.
    auto later = std::make_shared<ControlReply>(std::move(reply));
    const auto asked =
        client.discover(server, session.value_or(""), timeout,
                        [later, server, &reactor](const std::optional<ControlFailure>& failure,
                                                  const std::vector<CatalogEntry>& entries) {
                            if (failure)
                                return later->fail(failure->code, server + ": " + failure->message);
                            answer_discover(reactor, later, server, entries);
                        });
    if (!asked) later->fail(asked.error());
}

void status(const ClientState& state, const json& given, ControlReply reply) {
    ControlArguments arguments(given);
    const bool remote = arguments.flag("remote");
    const rtrs::Duration timeout = arguments.seconds("timeout_s", remote_default, remote_max);
    if (const auto failure = arguments.failure()) return reply.fail(*failure);
    if (!remote) return reply.succeed(client_status(state));
    // The reply outlives this call: it is given when the servers have answered, or did not.
    const auto later = std::make_shared<ControlReply>(std::move(reply));
    ask_servers(state.client, timeout, [later, &state](const ServerViews& views) {
        later->succeed(client_status(state, views));
    });
}

void add_path_commands(ControlServer& control, Client& client) {
    using Kind = PathCommands::Kind;
    const auto operations = std::make_shared<PathCommands>(client);
    for (const auto& [name, kind] : {std::pair{"path_add", Kind::add},
                                     {"path_remove", Kind::remove},
                                     {"path_reconnect", Kind::reconnect},
                                     {"path_disconnect", Kind::disconnect}}) {
        control.add_command(name,
                            [operations, which = kind](const json& arguments, ControlReply reply) {
                                operations->start(which, arguments, std::move(reply));
                            });
    }
}

}  // namespace

void add_client_commands(ControlServer& control, Client& client, const ClientState& state,
                         std::string socket_folder) {
    control.add_command("status", [&state](const json& arguments, ControlReply reply) {
        status(state, arguments, std::move(reply));
    });
    control.add_command("list",
                        [&state](ControlReply reply) { reply.succeed(client_list(state)); });
    control.add_command("paths", [&client, &state](const json& arguments, ControlReply reply) {
        paths(client, state, arguments, std::move(reply));
    });
    add_path_commands(control, client);
    control.add_command("policy", [&client](const json& arguments, ControlReply reply) {
        policy(client, arguments, std::move(reply));
    });
    control.add_command("hold", [&client](const json& arguments, ControlReply reply) {
        hold(client, arguments, std::move(reply));
    });
    control.add_command("explain", [&state](const json& arguments, ControlReply reply) {
        explain(state, arguments, std::move(reply));
    });
    const auto maps = std::make_shared<MapCommand>(client, std::move(socket_folder));
    control.add_command("map", [maps](const json& arguments, ControlReply reply) {
        maps->start(arguments, std::move(reply));
    });
    control.add_command("discover", [&client, &state](const json& arguments, ControlReply reply) {
        discover(client, state.reactor, arguments, std::move(reply));
    });
    control.add_command("unmap", [&client](const json& arguments, ControlReply reply) {
        unmap(client, arguments, std::move(reply));
    });
}

}  // namespace rnbd
