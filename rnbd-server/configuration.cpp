#include "rnbd-server/configuration.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>

#include "daemon/config/files.h"
#include "daemon/reload/rollback.h"
#include "rnbd-server/config_diff.h"
#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

using Kind = ConfigChange::Kind;
using Result = ConfigStep::Result;

constexpr const char* why_stopped = "rnbd-server is stopping";
constexpr rtrs::Duration in_use_interval = std::chrono::milliseconds(20);

bool has_key(const ConfigChange& change, std::string_view key) {
    return std::ranges::find(change.keys, key) != change.keys.end();
}

const ServerConfig::Listen& find_listener(const ServerConfig& config, const std::string& name) {
    const auto names = listener_names(config.listen);
    const auto found = std::ranges::find(names, name);
    RTRS_ASSERT(found != names.end());
    return config.listen[static_cast<std::size_t>(found - names.begin())];
}

bool is_in_memory(const Volume& volume) {
    return volume.config().storage.kind == StorageOptions::Kind::memory;
}

// Whether the files had that size there, too, when they were this.
bool is_said(const ServerConfig::Overruled& size, const ServerConfig& config) {
    return std::ranges::any_of(
               config.overruled,
               [&](const auto& one) { return one.name == size.name && one.bytes == size.bytes; }) ||
           std::ranges::any_of(config.exports, [&](const auto& one) {
               return one.name == size.name && one.storage.size_bytes == size.bytes;
           });
}

std::string name_of(const ServerConfig::Listen& listen) { return listener_names({listen}).front(); }

}  // namespace

// The exports of a configuration by their names. It outlives this.
class ServerConfiguration::Exports {
  public:
    explicit Exports(const ServerConfig& config) {
        for (const ServerConfig::Export& one : config.exports) by_name_.emplace(one.name, &one);
    }
    // Null if there is none.
    const ServerConfig::Export* find(const std::string& name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : found->second;
    }

  private:
    std::unordered_map<std::string, const ServerConfig::Export*> by_name_;
};

// What is going to stay may have what those need that come. Known before anything is removed: what
// makes room for one that cannot come then would be gone.
class ServerConfiguration::Staying {
  public:
    void add(const Volume& volume) {
        const StorageOptions& has = volume.config().storage;
        by_place_.emplace(has.place(), &volume);
        if (has.uuid) by_uuid_.emplace(*has.uuid, &volume);
        if (volume.state() != Volume::State::ready) return;
        const Uuid& found = volume.geometry().medium.uuid;
        if (found != has.uuid) by_uuid_.emplace(found, &volume);
    }
    // By the rules that Target has when one is added. Empty: there is none.
    std::string obstacle_to(const StorageOptions& coming) const {
        if (coming.uuid) {
            const auto [first, last] = by_uuid_.equal_range(*coming.uuid);
            for (auto other = first; other != last; ++other) {
                if (!other->second->may_share_uuid(coming))
                    return "export " + other->second->name() + " has the uuid " +
                           to_text(*coming.uuid) + " already";
            }
        }
        if (coming.place().empty()) return "";
        const auto [first, last] = by_place_.equal_range(coming.place());
        for (auto other = first; other != last; ++other) {
            if (!coming.may_share_place(other->second->config().storage))
                return "export " + other->second->name() + " has " + coming.place() + " already";
        }
        return "";
    }

  private:
    std::unordered_multimap<std::string, const Volume*> by_place_;
    std::multimap<Uuid, const Volume*> by_uuid_;
};

ServerConfiguration::ServerConfiguration(rtrs::Clock& clock, std::string path, ServerConfig started,
                                         Target& target, Listeners& listeners,
                                         std::function<void(LogLevel)> use_log_level)
    : clock_(clock),
      path_(std::move(path)),
      settings_(started),
      before_(std::move(started)),
      target_(target),
      listeners_(listeners),
      use_log_level_(std::move(use_log_level)),
      again_timer_(clock, this, [](void* self) {
          std::exchange(static_cast<ServerConfiguration*>(self)->again_, nullptr)();
      }) {}

std::expected<ConfigPlan, std::vector<ConfigError>> ServerConfiguration::plan(Force force) {
    const auto wanted = load_config<ServerConfig>(path_, PipeEnd::not_awaited);
    warnings_.clear();
    if (!wanted) return std::unexpected(wanted.error());
    warnings_ = wanted->warnings;
    // What --save has overruled is as it should be, until a file has another size there.
    std::erase_if(warnings_, [&](const ConfigError& warning) {
        const auto told =
            std::ranges::find(wanted->overruled, warning.text, &ServerConfig::Overruled::warning);
        return told != wanted->overruled.end() && is_said(*told, before_);
    });
    return plan_towards(*wanted, force == Force::yes ? How::by_force : How::gently);
}

// The step that looks again finds that it is over.
void ServerConfiguration::stop() {
    stopped_ = true;
    again_timer_.disarm();
    if (const auto again = std::exchange(again_, nullptr)) again();
}

ServerConfig ServerConfiguration::running() const {
    ServerConfig config = settings_;
    config.listen = listeners_.configured();
    config.exports.clear();
    for (const auto& volume : target_.volumes()) {
        if (target_.find(volume->name()) == volume.get())
            config.exports.push_back(volume->config());
    }
    // They are on their way: they may change, or go, like those that are there.
    std::ranges::move(target_.coming(), std::back_inserter(config.exports));
    return config;
}

ConfigPlan ServerConfiguration::plan_towards(const ServerConfig& wanted, How how) {
    const ServerConfig was = running();
    ConfigPlan plan{.changes = server_config_diff(was, before_, wanted)};
    const Exports exports(wanted);
    find_conflicts(plan.changes, exports, how);
    // What waited for its address before may wait again.
    add_listener_steps(plan, wanted,
                       how == How::back ? Listeners::Absent::waits : Listeners::Absent::fails);
    add_leaving_steps(plan, how);
    add_changing_steps(plan, exports);
    add_coming_steps(plan, exports);
    const auto applied = std::make_shared<Applied>(Applied{was, before_, wanted, {}});
    plan.finished = [this, applied](const std::vector<ConfigChange>& changes) {
        applied->changes = changes;
        finished(applied->wanted, changes);
    };
    plan.undo = [this, applied] { return plan_back(*applied); };
    return plan;
}

// Listeners and settings are the files' alone; exports may be rnbdctl's by now.
ConfigPlan ServerConfiguration::plan_back(const Applied& applied) {
    const ServerConfig now = running();
    auto since = server_config_diff(now, applied.wanted, applied.wanted);
    std::erase_if(since, [](const ConfigChange& change) { return change.object != "export"; });
    const Rollback rollback(applied.changes, since);
    ServerConfig goal = applied.was;
    goal.exports = rollback.objects(
        "export", now.exports, applied.was.exports,
        [](const ServerConfig::Export& one) { return one.name; },
        [](const ServerConfig::Export&, const ServerConfig::Export& former) { return former; });
    ConfigPlan back = plan_towards(goal, How::back);
    back.kept = rollback.kept();
    back.finished = [this, before = applied.before,
                     log_level = goal.log_level](const std::vector<ConfigChange>&) {
        settings_.log_level = log_level;
        before_ = before;
    };
    return back;
}

// --- What stands against it.

void ServerConfiguration::find_conflicts(std::vector<ConfigChange>& changes, const Exports& wanted,
                                         How how) {
    Staying staying;
    for (ConfigChange& change : changes) {
        if (change.object != "export") continue;
        change.conflict = conflict_of(change, wanted.find(change.name), how);
        const Volume* const volume = target_.find(change.name);
        if (volume != nullptr && !change.leaves()) staying.add(*volume);
    }
    for (ConfigChange& change : changes) {
        if (change.object != "export" || !change.comes()) continue;
        const std::string obstacle = staying.obstacle_to(wanted.find(change.name)->storage);
        if (!obstacle.empty()) change.conflict = obstacle;
    }
}

std::string ServerConfiguration::conflict_of(const ConfigChange& change,
                                             const ServerConfig::Export* wanted, How how) {
    const Volume* const volume = target_.find(change.name);
    if (volume == nullptr) return "";
    if (change.leaves() && how == How::gently) {
        const std::string open =
            volume->opens().empty() ? "" : "it is open by " + holders_of(*volume);
        // A removal says itself what is lost.
        if (change.kind == Kind::replaced && is_in_memory(*volume)) {
            return (open.empty() ? "" : open + ", and ") +
                   "what is in its memory would be lost; --force replaces it all the same";
        }
        if (!open.empty()) return open + "; --force takes it from them";
    }
    const bool same_medium =
        change.kind == Kind::changed ||
        (change.kind == Kind::replaced && !has_key(change, "path") && !has_key(change, "storage"));
    if (!same_medium || !has_key(change, "size") || how == How::back) return "";
    const auto& size = wanted->storage.size_bytes;
    if (!size || volume->state() == Volume::State::waiting) return "";
    if (*size >= volume->geometry().size_bytes) return "";
    return "it has " + std::to_string(volume->geometry().size_bytes) +
           " bytes, and what lies beyond the new size would be lost; rnbdctl exports resize "
           "--shrink does that";
}

// --- What is done.

void ServerConfiguration::add_listener_steps(ConfigPlan& plan, const ServerConfig& wanted,
                                             Listeners::Absent absent) {
    // None is given up before those that come are there: of them, one that is not.
    const auto not_opened = std::make_shared<std::string>();
    const auto add = [&](std::size_t index, std::function<std::string()> act) {
        plan.steps.push_back(
            {index, [act = std::move(act)](const ConfigStep::Done& done) { done(act()); }});
    };
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "listener" || !change.acts() || change.kind == Kind::removed) continue;
        const ServerConfig::Listen listen = find_listener(wanted, change.name);
        if (change.comes()) {
            plan.steps.push_back({i, [this, listen, absent, not_opened,
                                      in_the_way = in_the_way_of(change, listen, plan.changes)](
                                         const ConfigStep::Done& done) {
                                      open_in_place_of(
                                          in_the_way, listen, absent,
                                          [listen, not_opened, done](const Result& result) {
                                              if (!result.failure.empty())
                                                  *not_opened = name_of(listen);
                                              done(result);
                                          });
                                  }});
        } else {
            add(i, [this, listen, portal = listeners_.portal_of(change.name).value()] {
                listeners_.set_kernel(portal, *listen.kernel);
                return std::string();
            });
        }
    }
    add_setting_steps(plan, wanted, use_log_level_);
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "listener" || change.kind != Kind::removed) continue;
        add(i, [this, portal = listeners_.portal_of(change.name).value(), not_opened] {
            // It made room for one that came.
            if (!listeners_.find(portal)) return std::string();
            if (!not_opened->empty()) return "it stays, because " + *not_opened + " does not open";
            if (listeners_.is_last_open(portal))
                return std::string("it stays, because no other one listens yet");
            listeners_.close(portal);
            return std::string();
        });
    }
}

// Of those that go: what it replaces, and what has its address, or the part of it that matters.
std::vector<std::uint32_t> ServerConfiguration::in_the_way_of(
    const ConfigChange& coming, const ServerConfig::Listen& listen,
    const std::vector<ConfigChange>& changes) const {
    std::vector<std::uint32_t> portals;
    for (const ConfigChange& change : changes) {
        if (change.object != "listener" || !change.leaves()) continue;
        const std::uint32_t portal = listeners_.portal_of(change.name).value();
        if (change.name == coming.name || collide(*listeners_.find(portal), listen))
            portals.push_back(portal);
    }
    return portals;
}

// Those in the way are closed first, and are back if it does not open all the same.
void ServerConfiguration::open_in_place_of(const std::vector<std::uint32_t>& in_the_way,
                                           const ServerConfig::Listen& listen,
                                           Listeners::Absent absent, const ConfigStep::Done& done) {
    std::vector<Closed> closed;
    for (const std::uint32_t portal : in_the_way) {
        const auto running = listeners_.find(portal);
        if (!running) continue;
        closed.push_back({portal, *running});
        listeners_.close(portal);
    }
    open_listener(listen, absent, {}, clock_.now() + in_use_timeout,
                  [this, closed, done](const Result& result) {
                      if (result.failure.empty()) return done("");
                      open_again(closed, result.failure, done);
                  });
}

// failure: of what was to take their place.
void ServerConfiguration::open_again(std::vector<Closed> closed, std::string failure,
                                     const ConfigStep::Done& done) {
    if (closed.empty() || stopped_) return done(std::move(failure));
    const Closed one = std::move(closed.back());
    closed.pop_back();
    open_listener(one.listen, Listeners::Absent::waits, one.portal, clock_.now() + in_use_timeout,
                  [this, closed, failure, done](const Result& result) {
                      const std::string& more = result.failure;
                      open_again(closed, failure + (more.empty() ? "" : "; " + more), done);
                  });
}

// A socket of ours that was closed a moment ago may still have the address. again: its portal.
void ServerConfiguration::open_listener(const ServerConfig::Listen& listen,
                                        Listeners::Absent absent,
                                        std::optional<std::uint32_t> again, rtrs::Instant deadline,
                                        const ConfigStep::Done& done) {
    if (stopped_) return done(why_stopped);
    const auto opened = listeners_.open(listen, absent, again);
    if (opened) return done("");
    const bool in_use = opened.error().error == std::errc::address_in_use;
    if (!in_use || clock_.now() >= deadline) return done(opened.error().text);
    again_ = [this, listen, absent, again, deadline, done] {
        open_listener(listen, absent, again, deadline, done);
    };
    again_timer_.arm(clock_.now() + in_use_interval);
}

void ServerConfiguration::add_leaving_steps(ConfigPlan& plan, How how) {
    const auto removal =
        how == How::gently ? Target::Removal::if_unused : Target::Removal::by_force;
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "export" || !change.leaves()) continue;
        plan.steps.push_back(
            {i, [this, name = change.name, removal](const ConfigStep::Done& done) {
                 const auto removed =
                     target_.remove_export(name, removal, [done](std::error_code last_flush) {
                         done(Result::lost(last_flush ? Target::loss_of(last_flush) : ""));
                     });
                 if (!removed) done(removed.error().message);
             }});
    }
}

void ServerConfiguration::add_changing_steps(ConfigPlan& plan, const Exports& wanted) {
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "export" || change.kind != Kind::changed) continue;
        plan.steps.push_back(
            {i, [this, change, config = *wanted.find(change.name)](const ConfigStep::Done& done) {
                 change_export(change, config, done);
             }});
    }
}

void ServerConfiguration::change_export(const ConfigChange& change,
                                        const ServerConfig::Export& wanted,
                                        const ConfigStep::Done& done) {
    if (target_.is_coming(change.name)) {
        target_.change_coming(wanted);
        return done("");
    }
    Volume* const volume = target_.find(change.name);
    if (volume == nullptr) return done("it is gone");
    if (has_key(change, "allow")) target_.set_allow(*volume, wanted.allow);
    if (!has_key(change, "size")) return done("");
    const auto& size = wanted.storage.size_bytes;
    const auto size_before = volume->config().storage.size_bytes;
    volume->set_configured_size(size);
    if (volume->state() == Volume::State::waiting) {
        volume->grow_when_ready(size);
        return done("");
    }
    // Smaller only on the way back: what somebody may have written beyond stays.
    if (!size || *size <= volume->geometry().size_bytes) return done("");
    volume->resize(size, Volume::Shrink::refused,
                   [=](const std::expected<std::uint64_t, StorageError>& bytes) {
                       if (bytes) return done("");
                       volume->set_configured_size(size_before);  // it is still to be done
                       done(bytes.error().text);
                   });
}

// Those first that are given a uuid: it is not another one's that is found first.
void ServerConfiguration::add_coming_steps(ConfigPlan& plan, const Exports& wanted) {
    std::vector<std::size_t> coming;
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        if (plan.changes[i].object == "export" && plan.changes[i].comes()) coming.push_back(i);
    }
    std::ranges::stable_partition(coming, [&](std::size_t i) {
        return wanted.find(plan.changes[i].name)->storage.uuid.has_value();
    });
    for (const std::size_t i : coming) {
        const ConfigChange& change = plan.changes[i];
        plan.steps.push_back(
            {i, [this, change, config = *wanted.find(change.name)](const ConfigStep::Done& done) {
                 target_.add_export_when_free(config, [this, change, done](const auto& added) {
                     if (!added) return done(added.error().message);
                     if (change.kind != Kind::replaced) return done("");
                     // A file that was there keeps its size, so far.
                     const ServerConfig::Export now = target_.find(change.name)->config();
                     change_export(change, now, done);
                 });
             }});
    }
}

// What could not be removed, or grown, is still as the files had it: the next time tries it again.
// What could not be made is none yet: that it is not there is no doing of rnbdctl's.
void ServerConfiguration::finished(ServerConfig wanted, const std::vector<ConfigChange>& changes) {
    const Exports known_before(before_);
    std::set<std::string> exports_missing, listeners_missing;
    std::vector<ServerConfig::Listen> listeners_kept;
    for (const ConfigChange& change : changes) {
        if (change.failure.empty()) continue;
        if (change.object == "listener") {
            if (change.comes()) listeners_missing.insert(change.name);
            const auto kept = change.leaves() ? listeners_.portal_of(change.name) : std::nullopt;
            if (kept) listeners_kept.push_back(*listeners_.find(*kept));
        }
        if (change.object != "export") continue;
        if (change.comes() && !target_.find(change.name) && !target_.is_coming(change.name))
            exports_missing.insert(change.name);
        const auto* const known = known_before.find(change.name);
        if (known == nullptr) continue;
        if (change.kind == Kind::removed) wanted.exports.push_back(*known);
        if (change.kind != Kind::changed) continue;
        const auto now =
            std::ranges::find(wanted.exports, change.name, &ServerConfig::Export::name);
        if (now != wanted.exports.end()) now->storage.size_bytes = known->storage.size_bytes;
    }
    std::erase_if(wanted.exports,
                  [&](const auto& one) { return exports_missing.contains(one.name); });
    std::vector<ServerConfig::Listen> listen;
    const auto names = listener_names(wanted.listen);
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (!listeners_missing.contains(names[i])) listen.push_back(std::move(wanted.listen[i]));
    }
    listen.insert(listen.end(), listeners_kept.begin(), listeners_kept.end());
    wanted.listen = std::move(listen);
    settings_.log_level = wanted.log_level;
    before_ = std::move(wanted);
}

}  // namespace rnbd
