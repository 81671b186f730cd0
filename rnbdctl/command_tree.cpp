#include "rnbdctl/command_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/version.h"
#include "rnbdctl/completion.h"
#include "rnbdctl/exit_codes.h"
#include "rnbdctl/units.h"
#include "rnbdctl/views.h"
#include "rtrs/base/seconds.h"

namespace rnbd {

using nlohmann::json;

namespace {

constexpr rtrs::Duration shortest_timeout = std::chrono::milliseconds(1);
// How long the daemon waits for what an operation on a path, or a question to a server, brings; and
// how much later than that it may say so.
constexpr rtrs::Duration path_timeout = std::chrono::seconds(10);
constexpr rtrs::Duration daemon_timeout = std::chrono::seconds(10);

using rtrs::in_seconds;

std::function<std::optional<std::string>(Request&)> plain(const char* command, Request::View view) {
    return [=](Request& request) {
        request.command = command;
        request.view = view;
        return understood;
    };
}

// The daemon says which path it was: a label.
std::function<SavedPiece(const json&)> saved_path(const std::string& command,
                                                  const std::string& priority) {
    return [added = command == "path_add", priority](const json& answer) {
        const std::string label = answer.value("path", "");
        json amendment{{"session", answer.value("session", "")}};
        if (added) {
            json path = path_argument(label);
            if (!priority.empty()) path["priority"] = priority;
            amendment["add_paths"] = json::array({std::move(path)});
        } else {
            amendment["remove_paths"] = json::array({label});
        }
        return SavedPiece{.amend = std::move(amendment)};
    };
}

}  // namespace

std::vector<std::string> fixed_words(const std::string& kind) {
    if (kind == "POLICY") return {"round-robin", "min-inflight", "min-latency", "service-time"};
    if (kind == "PRIORITY") return {"prefer", "standby"};
    if (kind == "KERNEL") return {"auto"};
    if (kind == "IO") return {"buffered", "direct"};
    if (kind == "BLOCK") return {"512", "4096"};
    if (kind == "LEVEL") return {"debug", "info", "warning", "error"};
    if (kind == "SHELL") return {"bash", "zsh"};
    return {};
}

json path_argument(const std::string& text) {
    if (text.starts_with("rdma:")) return {{"rdma", text.substr(5)}};
    return {{"tcp", text.starts_with("tcp:") ? text.substr(4) : text}};
}

void forget(Request& request, const std::string& list, const std::string& name,
            Request::Forgetting forgetting) {
    forgetting.piece.take = {{list, json::array({name})}};
    request.saved = [piece = forgetting.piece](const json&) { return piece; };
    request.forgetting = std::move(forgetting);
}

std::function<SavedPiece(const json&)> amended(const char* kind, const char* key,
                                               const char* member) {
    return [=](const json& answer) {
        return SavedPiece{.amend = {{kind, answer.value(kind, "")},
                                    {key, answer.value(member != nullptr ? member : key, json())}}};
    };
}

CLI::App* command_called(CLI::App& app, const std::string& word) {
    const auto found = app.get_subcommands([&](CLI::App* one) { return one->get_name() == word; });
    return found.empty() ? nullptr : found.front();
}

CommandTree::CommandTree()
    : app_("Asks rnbd-server and rnbd-client what they do, and changes it while they run.",
           "rnbdctl") {
    add_global_options();
    add_looking();
    add_mapping();
    add_paths();
    add_policy();
    add_hold();
    add_exports();
    add_drain();
    add_statistics();
    add_attributes();
    add_config();
    add_completion();
}

void CommandTree::add_global_options() {
    app_.set_version_flag("--version", fmt::format("rnbdctl {}", version()),
                          "Print the version and end");
    app_.set_help_flag("-h,--help", "Print this help and end");
    app_.footer(exit_code_table());
    auto* server = app_.add_flag("--server", options_.server, "Ask rnbd-server");
    auto* client = app_.add_flag("--client", options_.client, "Ask rnbd-client");
    auto* socket =
        option(app_, "--socket", options_.socket, "FILE", "Ask the daemon behind this socket");
    server->excludes(client)->excludes(socket);
    client->excludes(socket);
    app_.add_flag("--json", options_.as_json,
                  "Print the daemon's answer as one line of JSON (schema rnbd-control)");
    time_option(app_, "--timeout", options_.timeout, {.min = shortest_timeout},
                "How long to wait for an answer, as 90s or 5min, or seconds (default: 60s; for a "
                "path's operation and discover: 10s; for config apply: 10min)");
    app_.require_subcommand(0, 1);  // run.cpp says which word is no command
    // Options of the program are also understood behind the command.
    app_.fallthrough();
}

CLI::Option* CommandTree::time_option(CLI::App& app, const char* name,
                                      std::optional<rtrs::Duration>& target, TimeBounds bounds,
                                      const char* help) {
    const std::string shown(name);
    return app
        .add_option_function<std::string>(
            name,
            [shown, &target, bounds](const std::string& text) {
                const auto time = time_of(text);
                if (time && *time >= bounds.min && *time <= bounds.max) {
                    target = *time;
                    return;
                }
                throw CLI::ValidationError(
                    shown, fmt::format("found \"{}\", expected a time as 90s or 5min, or seconds, "
                                       "from {} to {}",
                                       terminal_text(text), in_seconds(bounds.min),
                                       in_seconds(bounds.max)));
            },
            help)
        ->type_name("TIME");
}

CLI::App* CommandTree::add(CLI::App& parent, const char* word, const char* help, Daemon daemon,
                           Fill fill) {
    CLI::App* const made = parent.add_subcommand(word, help);
    commands_.push_back({made, daemon, std::move(fill)});
    return made;
}

const CommandTree::Command* CommandTree::command_of(const CLI::App* app) const {
    const auto found = std::ranges::find(commands_, app, &Command::app);
    return found == commands_.end() ? nullptr : &*found;
}

const CommandTree::Command* CommandTree::chosen() const {
    // A command comes before those inside of it.
    const auto found = std::find_if(commands_.rbegin(), commands_.rend(),
                                    [](const Command& one) { return one.app->parsed(); });
    return found == commands_.rend() ? nullptr : &*found;
}

CommandTree::Fill CommandTree::looking(Request::View view) {
    return [this, view](Request& request) {
        request.command = "status";
        request.view = view;
        if (options_.remote) request.arguments = {{"remote", true}};
        return understood;
    };
}

void CommandTree::add_remote(CLI::App& app) {
    app.add_flag("--remote", options_.remote,
                 "Also what the servers know of rnbd-client's sessions; they are asked");
}

Daemon CommandTree::asked() const { return options_.remote ? Daemon::client : chosen()->daemon; }

void CommandTree::add_looking() {
    add(app_, "list", "Exports or devices, one per line", Daemon::both, plain("list", list_view));
    add_remote(*add(app_, "status", "Everything: sessions, paths, exports or devices", Daemon::both,
                    looking(status_view)));
    add_remote(
        *add(app_, "sessions", "Sessions, one per line", Daemon::both, looking(sessions_view)));
    add(app_, "version", "Versions of rnbdctl and the daemons", Daemon::both,
        plain("version", version_view));
    auto* log = add(app_, "log", "How much the daemons say: show or set, until they end",
                    Daemon::both, [this](Request& request) {
                        request.command = "log";
                        request.view = log_view;
                        request.absent_hint.clear();
                        request.of_one = true;
                        if (!options_.level.empty()) request.arguments["level"] = options_.level;
                        if (!options_.area.empty()) request.arguments["area"] = options_.area;
                        return understood;
                    });
    option(*log, "level", options_.level, "LEVEL", "debug, info, warning or error");
    option(*log, "area", options_.area, "AREA",
           "Only what is logged as this, or below it: rtrs, rtrs.path (default: everything)");
    auto* explain =
        add(app_, "explain",
            "What every unanswered request of a device's session waits for (rnbd-client)",
            Daemon::client, [this](Request& request) {
                request.command = "explain";
                request.view = explain_view;
                request.arguments = {{"device", options_.device}};
                return understood;
            });
    option(*explain, "device", options_.device, "DEVICE", "The device's name")->required();
    auto* discover =
        add(app_, "discover", "The exports of a server that a session may open (rnbd-client)",
            Daemon::client, [this](Request& request) {
                const rtrs::Duration timeout = options_.timeout.value_or(path_timeout);
                request.command = "discover";
                request.options = {{"server", "SERVER"}, {"session", "--session"}};
                request.view = discover_view;
                request.late_hint = "does rnbd-server listen there? --timeout waits longer";
                request.arguments = {{"server", options_.server_address},
                                     {"timeout_s", in_seconds(timeout)}};
                if (!options_.session.empty()) request.arguments["session"] = options_.session;
                // The daemon knows why there is no answer yet: it says so first.
                request.timeout = timeout + daemon_timeout;
                return understood;
            });
    option(*discover, "server", options_.server_address, "SERVER",
           "A session that rnbd-client has, or [rdma:][SOURCE@]HOST:PORT")
        ->required();
    option(*discover, "--session", options_.session, "NAME",
           "Under which name to ask a server that no session has a path to");
}

void CommandTree::add_paths() {
    paths_ = add(app_, "paths", "The paths of sessions, and operations on them (rnbd-client)",
                 Daemon::client, [this](Request& request) {
                     request.command = "paths";
                     request.view = paths_view;
                     if (!options_.session.empty())
                         request.arguments = {{"session", options_.session}};
                     return understood;
                 });
    option(*paths_, "session", options_.session, "SESSION", "Only this session's");
    paths_->require_subcommand(0, 1);
    auto* added =
        add_path_operation("add", "path_add", "Add a path and wait until it is connected");
    option(*added, "--priority", options_.priority, "PRIORITY",
           "prefer (default), or standby: only while no preferred path is up");
    added->add_flag("--save", options_.save, save_help);
    auto* removed =
        add_path_operation("remove", "path_remove",
                           "Remove a path, its requests go on elsewhere; wait until it is gone");
    removed->add_flag("--save", options_.save, save_help);
    removed->add_flag("--force", options_.force, "Even if no other path is connected");
    add_path_operation("reconnect", "path_reconnect",
                       "Close a path and dial it at once; wait until it is connected");
    add_path_operation("disconnect", "path_disconnect",
                       "Close a path until reconnect; wait until it is closed");
}

void CommandTree::add_policy() {
    auto* policy = add(app_, "policy", "Which path takes a request: show or set (rnbd-client)",
                       Daemon::client, [this](Request& request) {
                           request.command = "policy";
                           request.view = policy_view;
                           request.arguments = {{"session", options_.session}};
                           if (!options_.policy.empty())
                               request.arguments["policy"] = options_.policy;
                           if (options_.save) request.saved = amended("session", "policy");
                           return understood;
                       });
    option(*policy, "session", options_.session, "SESSION", "The session")->required();
    option(*policy, "policy", options_.policy, "POLICY",
           "round-robin, min-inflight, min-latency or service-time; without --save until "
           "rnbd-client ends");
    policy->add_flag("--save", options_.save, save_help);
}

void CommandTree::add_hold() {
    auto* hold =
        add(app_, "hold", "How long I/O waits without a path at most: show or set (rnbd-client)",
            Daemon::client, [this](Request& request) {
                request.command = "hold";
                request.view = hold_view;
                if (options_.hold) request.arguments = {{"limit_s", in_seconds(*options_.hold)}};
                if (options_.off) request.arguments = {{"off", true}};
                return understood;
            });
    auto* limit = time_option(*hold, "time", options_.hold, {.min = {}},
                              "As 20s, or seconds: in all sessions, whatever hold_time says; until "
                              "rnbd-client ends");
    hold->add_flag("--off", options_.off, "As configured again")->excludes(limit);
}

CLI::App* CommandTree::add_path_operation(const char* word, const char* command, const char* help) {
    auto* made = add(*paths_, word, help, Daemon::client, [this, command](Request& request) {
        const rtrs::Duration timeout = options_.timeout.value_or(path_timeout);
        request.command = command;
        request.view = path_view;
        request.arguments = {{"session", options_.session},
                             {"path", options_.path},
                             {"timeout_s", in_seconds(timeout)}};
        if (!options_.priority.empty()) request.arguments["priority"] = options_.priority;
        if (options_.force) request.arguments["force"] = true;
        // What is in the way is the session itself, or what it does just now: no use of anything.
        request.in_use_hint.clear();
        if (options_.save) {
            request.saved = saved_path(request.command, options_.priority);
            const std::string label = label_of_path(options_.path);
            const json named{{"session", options_.session}, {"path", label}};
            request.saved_while_it_goes_on = request.saved(named);
            if (request.command == "path_remove") {
                request.forgetting = {.piece = request.saved(named),
                                      .gone = named,
                                      .command = {},
                                      .arguments = {},
                                      .kind = "path",
                                      .name = options_.session + " " + label};
                request.forgetting->gone["state"] = "removed";
            }
        }
        // The daemon knows why it is not done yet: it answers first.
        request.timeout = timeout + daemon_timeout;
        return understood;
    });
    option(*made, "session", options_.session, "SESSION", "The session")->required();
    option(*made, "path", options_.path, "PATH", "[rdma:][SOURCE@]HOST:PORT")->required();
    return made;
}

void CommandTree::add_statistics() {
    const auto rates = [this](Request& request) {
        request.command = "stats";
        request.view = rates_view;
        request.course = Request::Course::watch;
        request.interval = options_.interval.value_or(std::chrono::seconds(1));
        request.rounds = options_.rounds;
        return understood;
    };
    auto* stats = add(app_, "stats", "Counters of sessions and devices since the last reset",
                      Daemon::both, plain("stats", stats_view));
    stats->require_subcommand(0, 1);
    const auto with_rounds = [this](CLI::App& app) {
        time_option(app, "--interval", options_.interval, {.min = std::chrono::milliseconds(50)},
                    "Between two lines, as 500ms, or seconds (default: 1s)");
        option(app, "--rounds", options_.rounds, "N", "End after so many (default: never)")
            ->check(CLI::Range(1u, 1'000'000'000u));
    };
    with_rounds(
        *add(*stats, "watch", "What happens per second, again and again", Daemon::both, rates));
    add(*stats, "reset", "Count from zero; monitoring is not disturbed", Daemon::both,
        plain("stats_reset", stats_reset_view));
    with_rounds(*add(app_, "top", "As stats watch, busiest first, on one screen", Daemon::both,
                     [rates](Request& request) {
                         static_cast<void>(rates(request));
                         request.course = Request::Course::top;
                         return understood;
                     }));
}

void CommandTree::add_completion() {
    auto* made = add(app_, "completion", "Print the script for a shell's completion", Daemon::both,
                     [this](Request& request) -> std::optional<std::string> {
                         request.course = Request::Course::local;
                         request.text = completion_script(options_.shell);
                         if (!request.text.empty()) return understood;
                         return fmt::format("shell: found \"{}\", expected {}", options_.shell,
                                            fmt::join(fixed_words("SHELL"), " or "));
                     });
    option(*made, "shell", options_.shell, "SHELL", "bash or zsh")->required();
}

}  // namespace rnbd
