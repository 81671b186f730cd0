// rnbdctl config: the daemons' configuration, and what of it they do.

#include <chrono>

#include "daemon/config_reader.h"
#include "rnbdctl/command_tree.h"
#include "rnbdctl/config_views.h"

namespace rnbd {
namespace {

constexpr std::optional<std::string> understood;
// A change waits for what is in flight, object by object.
constexpr std::chrono::seconds apply_patience{600};

}  // namespace

void CommandTree::add_config() {
    auto* config = app_.add_subcommand(
        "config", "The configuration of a running daemon: check, compare and apply its files");
    config->require_subcommand(1);
    const auto add_one = [&](const char* word, const char* help, const char* command) {
        return add(*config, word, help, Daemon::both, [command](Wish& wish) {
            wish.command = command;
            wish.view = config_view;
            wish.judge = config_exit;
            return understood;
        });
    };
    add_one("check", "Read the files and say what is wrong with them", "config_check");
    add_one("diff", "What the files say and the daemon does not do, and the other way round",
            "config_diff");
    add_one("confirm", "Keep what config apply --confirm-within has changed", "config_confirm");
    auto* apply = add(*config, "apply", "Change what differs from the files, and nothing else",
                      Daemon::both, [this](Wish& wish) -> std::optional<std::string> {
                          wish.command = "config_apply";
                          wish.view = config_view;
                          wish.judge = config_exit;
                          wish.arguments = {{"force", options_.force}};
                          if (!options_.timeout_s) wish.timeout = apply_patience;
                          if (options_.confirm_within.empty()) return understood;
                          const auto within = parse_duration(options_.confirm_within);
                          if (!within || *within <= rtrs::Duration::zero())
                              return "--confirm-within: expected a duration as 60s or 5min";
                          wish.arguments["confirm_within_s"] =
                              std::chrono::duration<double>(*within).count();
                          return understood;
                      });
    apply->add_flag("--force", options_.force,
                    "Even if what goes is in use: exports are taken from sessions, NBD clients are "
                    "disconnected, block devices are detached");
    option(*apply, "--confirm-within", options_.confirm_within, "TIME",
           "Take it back after so long (as 60s) unless rnbdctl config confirm comes");
}

}  // namespace rnbd
