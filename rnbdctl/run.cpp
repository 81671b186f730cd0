#include "rnbdctl/run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <vector>

#include "daemon/control_client.h"
#include "daemon/version.h"
#include "rnbdctl/exit_codes.h"
#include "rnbdctl/units.h"
#include "rnbdctl/views.h"

namespace rnbd {

using nlohmann::json;

namespace {

enum class Output : std::uint8_t { text, json };
using View = std::string (*)(const json&);

// What the command line asks for.
struct Wish {
    std::string command;
    json arguments = json::object();
    View view = nullptr;
    // Sockets to ask, in order.
    std::vector<std::string> sockets;
    // Whether a socket that does not exist is passed over, if another one answers.
    enum class Absent : std::uint8_t { is_an_error, is_skipped };
    Absent absent = Absent::is_an_error;
    Output output = Output::text;
    rtrs::Duration timeout{};
};

// Filled by CLI11.
struct Options {
    bool server = false, client = false, as_json = false, read_only = false, migration = false;
    bool force = false;
    std::string socket, volume, session, name, device, path, priority, policy;
    std::vector<std::string> nbd, paths;
    std::optional<unsigned> timeout_s;
};

class CommandLine {
  public:
    CommandLine();
    // Returns an exit code if there is nothing to ask a daemon.
    std::optional<int> parse(int argc, const char* const* argv, std::ostream& out,
                             std::ostream& err);
    Wish wish(const DefaultSockets& sockets) const;

  private:
    void add_map();
    void add_unmap();
    void add_paths();
    void add_path_operation(CLI::App*& command, const char* name, const char* help);
    void add_policy();
    void add_explain();
    bool of_client() const;
    bool operates_on_path() const;
    void wish_path(Wish& wish) const;
    void find_sockets(Wish& wish, const DefaultSockets& sockets) const;

    CLI::App app_{"Asks rnbd-server and rnbd-client what they do, and maps volumes.", "rnbdctl"};
    Options options_;
    CLI::App* list_ = nullptr;
    CLI::App* status_ = nullptr;
    CLI::App* version_ = nullptr;
    CLI::App* map_ = nullptr;
    CLI::App* unmap_ = nullptr;
    CLI::App* paths_ = nullptr;
    CLI::App* path_add_ = nullptr;
    CLI::App* path_remove_ = nullptr;
    CLI::App* path_reconnect_ = nullptr;
    CLI::App* path_disconnect_ = nullptr;
    CLI::App* policy_ = nullptr;
    CLI::App* explain_ = nullptr;
};

CommandLine::CommandLine() {
    app_.set_version_flag("--version", fmt::format("rnbdctl {}", version()),
                          "Print the version and end");
    app_.set_help_flag("-h,--help", "Print this help and end");
    app_.footer(exit_code_table());
    auto* server = app_.add_flag("--server", options_.server, "Ask rnbd-server");
    auto* client = app_.add_flag("--client", options_.client, "Ask rnbd-client");
    auto* socket = app_.add_option("--socket", options_.socket, "Ask the daemon behind this socket")
                       ->type_name("PATH");
    server->excludes(client)->excludes(socket);
    client->excludes(socket);
    app_.add_flag("--json", options_.as_json,
                  "Print the daemon's answer as one line of JSON (schema rnbd-control)");
    app_.add_option("--timeout", options_.timeout_s,
                    "Seconds to wait for an answer (default: 60; for a path's operation: 10)")
        ->type_name("SECONDS")
        ->check(CLI::Range(1u, 86400u));
    app_.require_subcommand(0, 1);  // parse() says which word is no command
    // Options of the program are also understood behind the command.
    app_.fallthrough();
    list_ = app_.add_subcommand("list", "Exports or devices, one per line");
    status_ = app_.add_subcommand("status", "Everything: sessions, paths, exports or devices");
    version_ = app_.add_subcommand("version", "Versions of rnbdctl and the daemons");
    add_map();
    add_unmap();
    add_paths();
    add_policy();
    add_explain();
}

void CommandLine::add_map() {
    map_ = app_.add_subcommand("map", "Serve a remote volume as an NBD device (rnbd-client)");
    map_->add_option("volume", options_.volume, "The export's name at the server")
        ->type_name("VOLUME")
        ->required();
    map_->add_option("--session", options_.session,
                     "A session that rnbd-client has; with --path, the name of a new one")
        ->type_name("NAME")
        ->required();
    map_->add_option("--path", options_.paths, "Make the session, with this path (repeatable)")
        ->type_name("HOST:PORT");
    map_->add_option("--name", options_.name, "The device's name (default: VOLUME)")
        ->type_name("DEVICE");
    auto* read_only = map_->add_flag("--ro", options_.read_only, "Open it read-only");
    map_->add_flag("--migration", options_.migration, "Open it as the second writer of a migration")
        ->excludes(read_only);
    map_->add_option("--nbd", options_.nbd,
                     "unix:/PATH or tcp:HOST:PORT (repeatable; default: beside the control socket)")
        ->type_name("ADDRESS");
}

void CommandLine::add_unmap() {
    unmap_ = app_.add_subcommand("unmap", "Stop serving a device (rnbd-client)");
    unmap_->add_option("device", options_.device, "The device's name")
        ->type_name("DEVICE")
        ->required();
    unmap_->add_flag("--force", options_.force,
                     "Even if NBD clients are connected: they are disconnected");
}

void CommandLine::add_paths() {
    paths_ =
        app_.add_subcommand("paths", "The paths of sessions, and operations on them (rnbd-client)");
    paths_->add_option("session", options_.session, "Only this session's")->type_name("SESSION");
    paths_->require_subcommand(0, 1);
    add_path_operation(path_add_, "add", "Add a path and wait until it is connected");
    path_add_
        ->add_option("--priority", options_.priority,
                     "prefer (default), or standby: only while no preferred path is up")
        ->type_name("PRIORITY");
    add_path_operation(path_remove_, "remove",
                       "Remove a path, its requests go on elsewhere; wait until it is gone");
    add_path_operation(path_reconnect_, "reconnect",
                       "Close a path and dial it at once; wait until it is connected");
    add_path_operation(path_disconnect_, "disconnect",
                       "Close a path until reconnect; wait until it is closed");
}

void CommandLine::add_path_operation(CLI::App*& command, const char* name, const char* help) {
    command = paths_->add_subcommand(name, help);
    command->add_option("session", options_.session, "The session")
        ->type_name("SESSION")
        ->required();
    command->add_option("path", options_.path, "[SOURCE@]HOST:PORT")->type_name("PATH")->required();
}

void CommandLine::add_policy() {
    policy_ =
        app_.add_subcommand("policy", "Which path takes a request: show or set (rnbd-client)");
    policy_->add_option("session", options_.session, "The session")
        ->type_name("SESSION")
        ->required();
    policy_
        ->add_option(
            "policy", options_.policy,
            "round-robin, min-inflight, min-latency or service-time; until rnbd-client ends")
        ->type_name("POLICY");
}

void CommandLine::add_explain() {
    explain_ = app_.add_subcommand(
        "explain", "What every unanswered request of a device's session waits for (rnbd-client)");
    explain_->add_option("device", options_.device, "The device's name")
        ->type_name("DEVICE")
        ->required();
}

// Commands that rnbd-server does not have.
bool CommandLine::of_client() const { return *map_ || *unmap_ || *paths_ || *policy_ || *explain_; }

bool CommandLine::operates_on_path() const {
    return *path_add_ || *path_remove_ || *path_reconnect_ || *path_disconnect_;
}

std::optional<int> CommandLine::parse(int argc, const char* const* argv, std::ostream& out,
                                      std::ostream& err) {
    try {
        app_.parse(argc, argv);
        if (app_.get_subcommands().empty()) throw CLI::RequiredError("A command");
    } catch (const CLI::ExtrasError&) {
        const std::string word = app_.remaining(true).front();
        const bool option = word.starts_with('-');
        const bool command = !option && app_.get_subcommands().empty();
        err << "rnbdctl: "
            << (option    ? "unknown option"
                : command ? "no command"
                          : "unexpected word")
            << " \"" << terminal_text(word) << '"'
            << (command ? ": expected list, status, paths, policy, explain, map, unmap or version"
                        : "")
            << " (see --help)\n";
        return static_cast<int>(CtlExit::usage);
    } catch (const CLI::ParseError& error) {
        return static_cast<int>(app_.exit(error, out, err) == 0 ? CtlExit::ok : CtlExit::usage);
    }
    if (options_.server && of_client()) {
        err << "rnbdctl: " << app_.get_subcommands().front()->get_name()
            << " is a command of rnbd-client: leave --server out\n";
        return static_cast<int>(CtlExit::usage);
    }
    return std::nullopt;
}

void CommandLine::find_sockets(Wish& wish, const DefaultSockets& sockets) const {
    if (!options_.socket.empty())
        wish.sockets = {options_.socket};
    else if (options_.server)
        wish.sockets = {sockets.server};
    else if (options_.client || of_client())
        wish.sockets = {sockets.client};
    else {
        wish.sockets = {sockets.server, sockets.client};
        wish.absent = Wish::Absent::is_skipped;
    }
}

Wish CommandLine::wish(const DefaultSockets& sockets) const {
    Wish wish;
    wish.output = options_.as_json ? Output::json : Output::text;
    wish.timeout = std::chrono::seconds(options_.timeout_s.value_or(60));
    find_sockets(wish, sockets);
    if (*list_) wish.command = "list", wish.view = list_view;
    if (*status_) wish.command = "status", wish.view = status_view;
    if (*version_) wish.command = "version", wish.view = version_view;
    if (*map_) {
        wish.command = "map";
        wish.view = map_view;
        const char* const access = options_.read_only   ? "ro"
                                   : options_.migration ? "migration"
                                                        : "rw";
        wish.arguments = {{"volume", options_.volume},
                          {"session", options_.session},
                          {"device", options_.name.empty() ? options_.volume : options_.name},
                          {"access", access}};
        if (!options_.nbd.empty()) wish.arguments["nbd"] = options_.nbd;
        for (const std::string& path : options_.paths)
            wish.arguments["paths"].push_back({{"tcp", path}});
    }
    if (*unmap_) {
        wish.command = "unmap";
        wish.view = unmap_view;
        wish.arguments = {{"device", options_.device}, {"force", options_.force}};
    }
    if (*policy_) {
        wish.command = "policy";
        wish.view = policy_view;
        wish.arguments = {{"session", options_.session}};
        if (!options_.policy.empty()) wish.arguments["policy"] = options_.policy;
    }
    if (*explain_) {
        wish.command = "explain";
        wish.view = explain_view;
        wish.arguments = {{"device", options_.device}};
    }
    if (*paths_) wish_path(wish);
    return wish;
}

void CommandLine::wish_path(Wish& wish) const {
    if (!operates_on_path()) {
        wish.command = "paths";
        wish.view = paths_view;
        if (!options_.session.empty()) wish.arguments = {{"session", options_.session}};
        return;
    }
    const unsigned patience_s = options_.timeout_s.value_or(10);
    wish.command = *path_add_         ? "path_add"
                   : *path_remove_    ? "path_remove"
                   : *path_reconnect_ ? "path_reconnect"
                                      : "path_disconnect";
    wish.view = path_view;
    wish.arguments = {
        {"session", options_.session}, {"path", options_.path}, {"timeout_s", patience_s}};
    if (!options_.priority.empty()) wish.arguments["priority"] = options_.priority;
    // The daemon knows why it is not done yet: it answers first.
    wish.timeout = std::chrono::seconds(patience_s + 10);
}

std::string json_line(const json& document) {
    return document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

CtlExit report_failure(const Wish& wish, const ControlCallFailure& failure, std::ostream& out,
                       std::ostream& err) {
    const CtlExit exit = exit_for(failure);
    if (wish.output == Output::json) {
        const char* const word = failure.code ? to_string(*failure.code) : "unreachable";
        out << json_line({{"schema", control_schema},
                          {"version", control_version},
                          {"ok", false},
                          {"error", {{"code", word}, {"message", failure.message}}}});
        return exit;
    }
    err << "rnbdctl: " << terminal_text(failure.message) << "\n";
    if (const auto hint = hint_for(exit); !hint.empty()) err << "rnbdctl: " << hint << "\n";
    return exit;
}

void report_result(const Wish& wish, const json& result, std::ostream& out) {
    if (wish.output == Output::json)
        out << json_line({{"schema", control_schema},
                          {"version", control_version},
                          {"ok", true},
                          {"result", result}});
    else
        out << wish.view(result);
}

CtlExit ask_all(const Wish& wish, std::ostream& out, std::ostream& err) {
    CtlExit worst = CtlExit::ok;
    std::size_t answered = 0;
    std::vector<ControlCallFailure> absent;
    for (const std::string& socket : wish.sockets) {
        const auto result = control_call({.socket_path = socket, .timeout = wish.timeout},
                                         wish.command, wish.arguments);
        if (!result && result.error().kind == ControlCallFailure::Kind::absent &&
            wish.absent == Wish::Absent::is_skipped) {
            absent.push_back(result.error());
            continue;
        }
        if (answered++ > 0 && wish.output == Output::text) out << "\n";
        if (result)
            report_result(wish, *result, out);
        else
            worst = report_failure(wish, result.error(), out, err);
    }
    if (answered > 0) return worst;
    ControlCallFailure none = absent.front();
    none.message = "neither daemon is here: " + absent.front().message;
    if (absent.size() > 1) none.message += "; " + absent.back().message;
    return report_failure(wish, none, out, err);
}

}  // namespace

int run_rnbdctl(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                const DefaultSockets& sockets) {
    CommandLine command_line;
    if (const auto exit = command_line.parse(argc, argv, out, err)) return *exit;
    const Wish wish = command_line.wish(sockets);
    if (wish.command == "version" && wish.output == Output::text)
        out << "rnbdctl " << version() << "\n";
    return static_cast<int>(ask_all(wish, out, err));
}

}  // namespace rnbd
