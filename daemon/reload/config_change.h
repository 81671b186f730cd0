// The parts of a change of the configuration: one entry per object, and the steps that carry the
// change out. Plain values; each daemon knows how to compare two of its configurations.
//
//   running   what the daemon does now, whoever told it to
//   before    what the files said when they were applied last
//   wanted    what the files say now
//
// The files decide about the objects that they name now or named before. Objects that rnbdctl has
// made besides stay as they are, and are shown as drift.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/config/common.h"

namespace rnbd {

struct ConfigChange {
    enum class Kind : std::uint8_t {
        unchanged,
        added,
        removed,
        changed,   // the object is changed while it runs
        replaced,  // the object is removed and made anew
        restart,   // the change takes effect only when the daemon is restarted
    };
    std::string object;  // "export", "listener", "session", "path", "device", "setting"
    std::string name;
    Kind kind = Kind::unchanged;
    // The keys of the configuration that change: at once, and after a restart.
    std::vector<std::string> keys{};
    std::vector<std::string> restart_keys{};
    // What rnbdctl has done to the object that no file says; empty: nothing.
    std::string drift{};
    // Why the change must not be made; empty: it may.
    std::string conflict{};
    // Why the change has failed although it was tried; empty: it has not failed.
    std::string failure{};
    // Which data may be lost although the change was made: the end of a sentence; empty: none.
    std::string loss{};

    bool operator==(const ConfigChange&) const = default;
    bool acts() const noexcept { return kind != Kind::unchanged && kind != Kind::restart; }
    bool leaves() const noexcept { return kind == Kind::removed || kind == Kind::replaced; }
    bool comes() const noexcept { return kind == Kind::added || kind == Kind::replaced; }
};
const char* to_string(ConfigChange::Kind kind) noexcept;
nlohmann::json to_json(const ConfigChange& change);
// "export vol1: changed (allow, size)"
std::string to_string(const ConfigChange& change);

// Keys that differ between two versions of an object, by what it takes to change them.
struct ConfigKeys {
    std::vector<std::string> live{};
    std::vector<std::string> replace{};
    std::vector<std::string> restart{};
    bool none() const noexcept { return live.empty() && replace.empty() && restart.empty(); }
};

// Compares the objects of one kind and adds what it finds to `changes`.
// name(object) -> std::string. compare(running, wanted, before) -> ConfigKeys; before: null if no
// file named it.
template <typename Object, typename Name, typename Compare>
void compare_objects(const std::string& object, const std::vector<Object>& running,
                     const std::vector<Object>& before, const std::vector<Object>& wanted,
                     const Name& name, const Compare& compare, std::vector<ConfigChange>& changes) {
    // There may be ten thousand objects, and the daemon serves nobody meanwhile.
    using Index = std::unordered_map<std::string, const Object*>;
    const auto index = [&](const std::vector<Object>& objects) {
        Index found;
        for (const Object& one : objects) found.emplace(name(one), &one);
        return found;
    };
    const auto find = [](const Index& objects, const std::string& wanted_name) -> const Object* {
        const auto found = objects.find(wanted_name);
        return found == objects.end() ? nullptr : found->second;
    };
    const Index of_running = index(running), of_before = index(before), of_wanted = index(wanted);
    using Kind = ConfigChange::Kind;
    for (const Object& one : wanted) {
        ConfigChange change{.object = object, .name = name(one)};
        const Object* const now = find(of_running, change.name);
        const Object* const earlier = find(of_before, change.name);
        if (now == nullptr) {
            change.kind = Kind::added;
            if (earlier != nullptr) change.drift = "removed";
        } else if (ConfigKeys keys = compare(*now, one, earlier); !keys.none()) {
            change.kind = !keys.replace.empty() ? Kind::replaced
                          : !keys.live.empty()  ? Kind::changed
                                                : Kind::restart;
            change.keys = std::move(keys.live);
            for (std::string& key : keys.replace) change.keys.push_back(std::move(key));
            // An object that is made anew gets all keys at once.
            if (change.kind != Kind::replaced) change.restart_keys = std::move(keys.restart);
            if (earlier == nullptr)
                change.drift = "made";
            else if (!compare(*now, *earlier, earlier).none())
                change.drift = "changed";
        }
        changes.push_back(std::move(change));
    }
    for (const Object& one : running) {
        if (find(of_wanted, name(one)) != nullptr) continue;
        ConfigChange change{.object = object, .name = name(one)};
        if (find(of_before, change.name) != nullptr)
            change.kind = Kind::removed;
        else
            change.drift = "made";
        changes.push_back(std::move(change));
    }
}

// Compares a setting of the whole daemon; it is listed only if it differs.
void compare_setting(const std::string& key, bool same, ConfigChange::Kind kind,
                     std::vector<ConfigChange>& changes);
// These compare the settings that read_loop_settings() and read_process_settings() read.
void compare_loop_settings(const DaemonSettings& running, const DaemonSettings& wanted,
                           std::vector<ConfigChange>& changes);
void compare_process_settings(const DaemonSettings& running, const DaemonSettings& wanted,
                              std::vector<ConfigChange>& changes);

// A step of a change. It ends by calling done(), possibly from inside run().
struct ConfigStep {
    // As the members of ConfigChange.
    struct Result {
        // NOLINTNEXTLINE(google-explicit-constructor): most have a failure, or none, to say
        Result(std::string its_failure) : failure(std::move(its_failure)) {}
        // NOLINTNEXTLINE(google-explicit-constructor)
        Result(const char* its_failure) : failure(its_failure) {}
        static Result lost(std::string what) {
            Result result("");
            result.loss = std::move(what);
            return result;
        }
        std::string failure;
        std::string loss{};
    };
    using Done = std::function<void(Result result)>;
    // An index in ConfigPlan::changes.
    std::size_t change = 0;
    std::function<void(Done done)> run;
};

struct ConfigPlan {
    std::vector<ConfigChange> changes;
    // Steps are run one after another. If one fails, the next one is tried nevertheless.
    std::vector<ConfigStep> steps;
    // Called when the steps are over: from now on "wanted" is the new "before".
    std::function<void(const std::vector<ConfigChange>& changes)> finished;
    // Called when the steps are over: returns the plan of the way back from what runs then, by
    // force. It puts back what this plan has changed to the state when this plan was made, and
    // nothing else.
    std::function<ConfigPlan()> undo;
    // In a plan of a way back: the objects, as "export vol1", that stay as rnbdctl has made them
    // since.
    std::vector<std::string> kept{};
};

// Adds the steps for settings that can change while the daemon runs: `log`.
void add_setting_steps(ConfigPlan& plan, const DaemonSettings& wanted,
                       const std::function<void(LogLevel)>& use_log_level);

}  // namespace rnbd
