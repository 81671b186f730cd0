#include "rnbd-client/commands.h"

#include <nlohmann/json.hpp>

#include "daemon/version.h"

namespace rnbd {
namespace {

using nlohmann::json;

struct MapRequest {
    ClientConfig::Device device;
    ClientConfig::Session session;
    bool with_paths = false;
};

// The arguments as the configuration that they stand for: the same words, rules and messages.
std::expected<MapRequest, ControlFailure> parse_map(const json& arguments, const Client& client,
                                                    const std::string& socket_folder) {
    const auto bad = [](std::string message) {
        return std::unexpected(ControlFailure{ControlError::bad_arguments, std::move(message)});
    };
    static constexpr const char* known[] = {"volume", "session", "device",
                                            "access", "nbd",     "paths"};
    for (const auto& [key, value] : arguments.items()) {
        if (std::find(std::begin(known), std::end(known), key) == std::end(known)) {
            return bad("unknown argument " + key);
        }
    }
    for (const char* key : {"volume", "session"}) {
        if (!arguments.contains(key) || !arguments[key].is_string()) {
            return bad(std::string(key) + ": expected a name");
        }
    }
    const std::string session_name = arguments["session"];
    json device{{"name", arguments.value("device", arguments["volume"])},
                {"session", session_name},
                {"volume", arguments["volume"]},
                {"access", arguments.value("access", json("rw"))}};
    if (!device["name"].is_string()) return bad("device: expected a name");
    device["nbd"] =
        arguments.contains("nbd")
            ? arguments["nbd"]
            : json("unix:" + socket_folder + "/" + device["name"].get<std::string>() + ".sock");
    json session{{"name", session_name}};
    MapRequest request;
    request.with_paths = arguments.contains("paths");
    if (request.with_paths) {
        session["paths"] = arguments["paths"];
    } else {
        const auto found = client.sessions().find(session_name);
        if (found == client.sessions().end()) {
            return std::unexpected(ControlFailure{
                ControlError::not_found,
                "there is no session " + session_name + "; --path HOST:PORT makes one"});
        }
        // Only to satisfy the rules of a whole configuration.
        session["paths"] = {{{"tcp", found->second->config.paths.front().destination}}};
    }
    const json config{{"sessions", {session}}, {"devices", {device}}};
    auto parsed =
        ClientConfig::parse(config.dump(-1, ' ', false, json::error_handler_t::replace), "map");
    if (!parsed) {
        std::string message;
        for (const ConfigError& error : parsed.error()) {
            message += (message.empty() ? "" : "; ") + error.key + ": " + error.text;
        }
        return bad(message);
    }
    request.device = std::move(parsed->devices.front());
    request.session = std::move(parsed->sessions.front());
    return request;
}

void map(Client& client, const std::string& socket_folder, const json& arguments,
         ControlReply reply) {
    const auto request = parse_map(arguments, client, socket_folder);
    if (!request) return reply.fail(request.error().code, request.error().message);
    const auto mapped =
        client.map(request->device, request->with_paths ? &request->session : nullptr);
    if (!mapped) return reply.fail(mapped.error().code, mapped.error().message);
    json nbd = json::array();
    for (const auto& address : request->device.nbd) nbd.push_back(address.to_string());
    reply.succeed({{"device", request->device.name}, {"nbd", nbd}});
}

void unmap(Client& client, const json& arguments, ControlReply reply) {
    if (!arguments.contains("device") || !arguments["device"].is_string()) {
        return reply.fail(ControlError::bad_arguments, "device: expected a name");
    }
    const json force = arguments.value("force", json(false));
    if (!force.is_boolean()) {
        return reply.fail(ControlError::bad_arguments, "force: expected true or false");
    }
    const std::string device = arguments["device"];
    // The reply outlives this call: it is given when the device is gone.
    auto later = std::make_shared<ControlReply>(std::move(reply));
    const auto unmapped =
        client.unmap(device, force.get<bool>() ? Client::Unmap::by_force : Client::Unmap::if_unused,
                     [later, device] { later->succeed({{"device", device}}); });
    if (!unmapped) later->fail(unmapped.error().code, unmapped.error().message);
}

}  // namespace

void add_client_commands(ControlServer& control, Client& client, const ClientState& state,
                         std::string socket_folder) {
    control.add_command("status", [&state](const json&, ControlReply reply) {
        reply.succeed(client_status(state));
    });
    control.add_command(
        "list", [&state](const json&, ControlReply reply) { reply.succeed(client_list(state)); });
    control.add_command("version", [](const json&, ControlReply reply) {
        reply.succeed({{"daemon", "rnbd-client"}, {"version", version()}});
    });
    control.add_command("map", [&client, folder = std::move(socket_folder)](const json& arguments,
                                                                            ControlReply reply) {
        map(client, folder, arguments, std::move(reply));
    });
    control.add_command("unmap", [&client](const json& arguments, ControlReply reply) {
        unmap(client, arguments, std::move(reply));
    });
}

}  // namespace rnbd
