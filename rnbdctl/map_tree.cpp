// The commands map and unmap.

#include <fmt/format.h>
#include <unistd.h>

#include "rnbdctl/command_tree.h"
#include "rnbdctl/views.h"

namespace rnbd {

using nlohmann::json;

namespace {

// The name of this machine as a session may be called: no dots.
std::string machine_name() {
    char name[256]{};
    if (::gethostname(name, sizeof name - 1) != 0) return "";
    std::string text(name);
    return text.substr(0, text.find('.'));
}

// A device, and its session if it is a new one, as the configuration has them.
std::function<SavedPiece(const json&)> saved_map(const json& arguments) {
    return [arguments](const json& answer) {
        json device{{"name", arguments["device"]},
                    {"session", arguments["session"]},
                    {"volume", arguments["volume"]},
                    {"access", arguments["access"]},
                    {"nbd", answer.value("nbd", json::array())}};
        if (arguments.contains("kernel_device")) device["device"] = arguments["kernel_device"];
        SavedPiece piece{.put = {{"devices", json::array({std::move(device)})}}};
        if (arguments.contains("paths")) {
            const json session{{"name", arguments["session"]}, {"paths", arguments["paths"]}};
            piece.put["sessions"] = json::array({session});
        }
        return piece;
    };
}

}  // namespace

std::optional<std::string> CommandTree::fill_map(Request& request) const {
    const Options& given = options_;
    if (given.from.empty() != given.server_address.empty() ||
        (!given.from.empty() && given.from != "from")) {
        return "map: expected EXPORT from SERVER";
    }
    const bool address = given.server_address.find(':') != std::string::npos;
    // No session has such a name, and no address is without a port.
    if (!address && given.server_address.contains('.')) {
        return fmt::format("map: found \"{}\", expected a session's name or HOST:PORT",
                           given.server_address);
    }
    std::string session = given.session;
    if (session.empty() && !address) session = given.server_address;
    if (session.empty() && (address || !given.paths.empty())) session = machine_name();
    if (session.empty()) return "map: expected EXPORT from SERVER, or --session NAME";
    if (!given.session.empty() && !given.server_address.empty() && !address)
        return "map: found a session behind from and with --session, expected one of them";
    request.command = "map";
    request.view = map_view;
    request.arguments = {{"volume", given.volume},
                         {"session", session},
                         {"device", given.name.empty() ? given.volume : given.name},
                         {"access", given.read_only   ? "ro"
                                    : given.migration ? "migration"
                                                      : "rw"}};
    if (!given.nbd.empty()) request.arguments["nbd"] = given.nbd;
    if (!given.kernel_device.empty()) request.arguments["kernel_device"] = given.kernel_device;
    if (address) request.arguments["paths"].push_back(path_argument(given.server_address));
    for (const std::string& path : given.paths)
        request.arguments["paths"].push_back(path_argument(path));
    if (address) request.options.emplace_back("paths[0]", "SERVER");
    request.options.insert(request.options.end(),
                           {{"paths", "--path"},
                            {"volume", "EXPORT"},
                            {"session", given.session.empty() ? "SERVER" : "--session"},
                            {"device", given.name.empty() ? "EXPORT" : "--name"},
                            {"nbd", "--nbd"},
                            {"kernel_device", "--device"}});
    if (given.save) request.saved = saved_map(request.arguments);
    return understood;
}

void CommandTree::add_mapping() {
    auto* map = add(app_, "map", "Serve a remote volume as an NBD device (rnbd-client)",
                    Daemon::client, [this](Request& request) { return fill_map(request); });
    option(*map, "export", options_.volume, "EXPORT", "The export's name at the server")
        ->required();
    option(*map, "from", options_.from, "from", "The word from");
    option(*map, "server", options_.server_address, "SESSION",
           "A session that rnbd-client has, or [rdma:][SOURCE@]HOST:PORT of a server");
    option(*map, "--session", options_.session, "NAME",
           "The session, a new one with --path or HOST:PORT (default then: this machine's name)");
    option(*map, "--path", options_.paths, "ADDRESS",
           "Make the session, with this path, [rdma:][SOURCE@]HOST:PORT (repeatable)")
        ->allow_extra_args(false);
    option(*map, "--name", options_.name, "NAME", "The device's name (default: EXPORT)");
    auto* read_only = map->add_flag("--ro", options_.read_only, "Open it read-only");
    map->add_flag("--migration", options_.migration, "Open it as the second writer of a migration")
        ->excludes(read_only);
    option(*map, "--nbd", options_.nbd, "NBD",
           "unix:/PATH or tcp:HOST:PORT (repeatable; default: beside the control socket)")
        ->allow_extra_args(false);
    option(*map, "--device", options_.kernel_device, "KERNEL",
           "Also as a block device of the kernel: /dev/nbdN, or auto");
    map->add_flag("--save", options_.save, save_help);
    auto* unmap =
        add(app_, "unmap", "Stop serving a device (rnbd-client)", Daemon::client,
            [this](Request& request) {
                request.command = "unmap";
                request.view = unmap_view;
                request.arguments = {{"device", options_.device}, {"force", options_.force}};
                if (options_.save) {
                    const json named{{"device", options_.device}};
                    forget(request, "devices", options_.device,
                           {.gone = named, .command = "explain", .arguments = named});
                }
                return understood;
            });
    option(*unmap, "device", options_.device, "DEVICE", "The device's name")->required();
    unmap->add_flag(
        "--force", options_.force,
        "Even if NBD clients are connected or the kernel's device is used: I/O on it fails then");
    unmap->add_flag("--save", options_.save, forget_help);
}

}  // namespace rnbd
