// All commands of rnbdctl with their words, options and help. Help, short forms, the explanation of
// typos and completion all use this tree.
//
// THREAD: any; one at a time. It cannot be moved, because the commands refer to its options.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <deque>
#include <expected>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/command_line_complaint.h"
#include "rnbdctl/request.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// The values that CLI11 fills in.
struct Options {
    bool server = false, client = false, as_json = false, read_only = false, migration = false;
    bool force = false, shrink = false, evict = false, off = false, no_wait = false, save = false;
    bool remote = false;
    std::string socket, volume, session, name, device, path, priority, policy, exported, size, io;
    std::string attribute, value;
    std::string block_size, uuid, from, server_address, shell, kernel_device;
    std::string level, area;
    std::vector<std::string> nbd, paths, allow;
    std::optional<std::uint32_t> rounds;
    std::optional<rtrs::Duration> timeout, interval, out, hold, confirm_within;
};

class CommandTree {
  public:
    struct Command {
        CLI::App* app = nullptr;
        Daemon daemon = Daemon::both;
        // Fills the request; an error is a usage error.
        std::function<std::optional<std::string>(Request&)> fill;
    };

    CommandTree();
    CommandTree(const CommandTree&) = delete;
    CommandTree& operator=(const CommandTree&) = delete;

    CLI::App& app() noexcept { return app_; }
    const Options& options() const noexcept { return options_; }
    // The command that was parsed; null before parsing.
    const Command* chosen() const;
    // The daemon that is to answer.
    // ASSUMES: chosen() is not null.
    Daemon asked() const;
    // The command of an app; null for the program itself.
    const Command* command_of(const CLI::App* app) const;

  private:
    using Fill = std::function<std::optional<std::string>(Request&)>;

    void add_global_options();
    void add_looking();
    void add_mapping();  // map_tree.cpp
    void add_paths();
    void add_policy();
    void add_hold();
    void add_exports();
    void add_export_remove();
    void add_export_resize();
    void add_export_evict();
    void add_drain();
    void add_statistics();
    void add_attributes();  // attributes.cpp
    void add_config();      // config_tree.cpp
    void add_completion();
    std::optional<std::string> fill_map(Request& request) const;
    Fill looking(Request::View view);
    void add_remote(CLI::App& app);
    CLI::App* add(CLI::App& parent, const char* word, const char* help, Daemon daemon, Fill fill);
    CLI::App* add_path_operation(const char* word, const char* command, const char* help);
    // As CLI::App::add_option(), with the kind of the value, which completion uses. The value must
    // not be empty.
    template <typename T>
    CLI::Option* option(CLI::App& app, const char* name, T& target, const char* kind,
                        const char* help) {
        return app.add_option(name, target, help)->type_name(kind)->check(not_empty(kind));
    }

    // An option for a time, given as 90s, 5min or plain seconds.
    struct TimeBounds {
        rtrs::Duration min, max = std::chrono::hours(24);
    };
    CLI::Option* time_option(CLI::App& app, const char* name, std::optional<rtrs::Duration>& target,
                             TimeBounds bounds, const char* help);

    CLI::App app_;
    Options options_;
    std::deque<Command> commands_;
    CLI::App* paths_ = nullptr;
    CLI::App* exports_ = nullptr;
};

// What Command::fill returns if nothing is wrong.
inline constexpr std::optional<std::string> understood;

// Makes an element of `paths` in the configuration. text: "[tcp:|rdma:][SOURCE@]HOST:PORT".
nlohmann::json path_argument(const std::string& text);

// The help of --save for commands that make something, and for commands that remove something.
constexpr const char* save_help =
    "Keep it: write it into 90-rnbdctl.yaml in the folder of the daemon's configuration";
constexpr const char* forget_help =
    "Forget it: take it out of 90-rnbdctl.yaml in the folder of the daemon's configuration";
// Prepares --save for a removal. list: the list in the configuration. The caller fills the members
// of `forgetting` other than the piece.
void forget(Request& request, const std::string& list, const std::string& name,
            Request::Forgetting forgetting);
// Makes an amendment of an answer: {kind: its name, key: the member `member` of the answer, or if
// that is null its member `key`}.
std::function<SavedPiece(const nlohmann::json&)> amended(const char* kind, const char* key,
                                                         const char* member = nullptr);

// The command with this name directly inside of app; null if there is none.
CLI::App* command_called(CLI::App& app, const std::string& word);

// The fixed list of words for a kind of value. Empty for kinds whose names only a daemon knows.
std::vector<std::string> fixed_words(const std::string& kind);

}  // namespace rnbd
