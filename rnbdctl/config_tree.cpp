// rnbdctl config: the daemons' configuration, and what of it they do.

#include <chrono>

#include "rnbdctl/command_tree.h"
#include "rnbdctl/config_views.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

// A change waits for what is in flight, object by object.
constexpr std::chrono::seconds apply_timeout{600};

void fill_change(Request& request, const char* command) {
    request.command = command;
    const bool looks = request.command == "config_check" || request.command == "config_diff";
    request.view = looks ? config_look_view : config_view;
    request.judge = config_exit;
    // What is not there, or stands against it, is a change of the configuration.
    request.absent_hint.clear();
    request.in_use_hint.clear();
}

}  // namespace

void CommandTree::add_config() {
    auto* config = app_.add_subcommand(
        "config", "The configuration of a running daemon: check, compare and apply its files");
    config->require_subcommand(1);
    const auto add_one = [&](const char* word, const char* help, const char* command) {
        return add(*config, word, help, Daemon::both, [command](Request& request) {
            fill_change(request, command);
            // Of the daemon that has a change which waits for it.
            request.of_one = request.command == "config_confirm";
            return understood;
        });
    };
    add_one("check", "Read the files and say what is wrong with them", "config_check");
    add_one("diff", "What the files say and the daemon does not do, and the other way round",
            "config_diff");
    add_one("confirm", "Keep what config apply --confirm-within has changed", "config_confirm");
    auto* apply = add(*config, "apply", "Change what differs from the files, and nothing else",
                      Daemon::both, [this](Request& request) -> std::optional<std::string> {
                          fill_change(request, "config_apply");
                          request.arguments = {{"force", options_.force}};
                          if (!options_.timeout) request.timeout = apply_timeout;
                          if (options_.confirm_within) {
                              request.arguments["confirm_within_s"] =
                                  rtrs::in_seconds(*options_.confirm_within);
                          }
                          return understood;
                      });
    apply->add_flag("--force", options_.force,
                    "Even if what goes is in use: exports are taken from sessions, NBD clients are "
                    "disconnected, block devices are detached");
    time_option(
        *apply, "--confirm-within", options_.confirm_within, {.min = std::chrono::milliseconds(1)},
        "Take it back after so long, as 60s, or seconds, unless rnbdctl config confirm comes");
}

}  // namespace rnbd
