#include "rnbd-client/configuration.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

#include "daemon/config/files.h"
#include "daemon/counted.h"
#include "daemon/log/log.h"
#include "daemon/reload/rollback.h"
#include "rnbd-client/client_session.h"
#include "rnbd-client/config_diff.h"

namespace rnbd {
namespace {

using Kind = ConfigChange::Kind;
using Session = ClientConfig::Session;
using Mapped = ClientConfig::Device;
using Path = ClientConfig::Path;

constexpr const char* why_stopped = "rnbd-client is stopping";
constexpr const char* why_not_the_last = "it is the session's last path";
constexpr rtrs::Duration look_interval = std::chrono::milliseconds(10);
// How long paths that go wait for those that come in their place.
constexpr rtrs::Duration replacement_time = std::chrono::seconds(5);

template <typename Object>
const Object* find(const std::vector<Object>& objects, const std::string& name) {
    const auto found = std::ranges::find(objects, name, &Object::name);
    return found == objects.end() ? nullptr : &*found;
}

std::string text_of(const std::expected<void, ControlFailure>& result) {
    return result ? "" : result.error().message;
}

const Mapping* find_mapping(const Client& client, const std::string& name) {
    for (const auto& mapping : client.mappings()) {
        if (mapping->config().name == name && !mapping->stopping()) return mapping.get();
    }
    return nullptr;
}

std::string kernel_use(const Mapping& mapping) {
    return mapping.kernel() != nullptr ? mapping.kernel()->use() : std::string();
}

// A session that was removed by force took those with it that rnbdctl had mapped there.
std::vector<ConfigChange> with_devices_of_sessions(std::vector<ConfigChange> changes,
                                                   const ClientConfig& was) {
    std::set<std::string> removed;
    for (const ConfigChange& change : changes) {
        if (change.object == "session" && change.kind == Kind::removed) removed.insert(change.name);
    }
    for (ConfigChange& change : changes) {
        if (change.object != "device" || change.acts()) continue;
        const Mapped* const device = find(was.devices, change.name);
        if (device != nullptr && removed.contains(device->session)) change.kind = Kind::removed;
    }
    return changes;
}

// A session that came stays if rnbdctl has mapped something there, or has changed its paths.
void keep_used_sessions(Rollback& rollback, const std::vector<ConfigChange>& changes,
                        const std::vector<ConfigChange>& since,
                        const std::vector<Mapped>& devices) {
    std::set<std::string> used;
    for (const Mapped& device : devices) used.insert(device.session);
    for (const ConfigChange& change : since) {
        if (change.object == "path") used.insert(session_and_label(change.name).first);
    }
    for (const ConfigChange& change : changes) {
        if (change.object == "session" && change.kind == Kind::added && used.contains(change.name))
            rollback.keep("session", change.name);
    }
}

}  // namespace

ClientConfiguration::ClientConfiguration(std::string path, ClientConfig started, Client& client,
                                         std::function<void(LogLevel)> use_log_level)
    : path_(std::move(path)),
      settings_(started),
      before_(std::move(started)),
      client_(client),
      use_log_level_(std::move(use_log_level)),
      again_timer_(client.clock(), this, [](void* self) {
          std::exchange(static_cast<ClientConfiguration*>(self)->again_, nullptr)();
      }) {}

std::expected<ConfigPlan, std::vector<ConfigError>> ClientConfiguration::plan(Force force) {
    const auto wanted = load_config<ClientConfig>(path_, PipeEnd::not_awaited);
    warnings_.clear();
    if (!wanted) return std::unexpected(wanted.error());
    warnings_ = wanted->warnings;
    return plan_towards(*wanted, force == Force::yes ? How::by_force : How::gently);
}

// The step that looks again finds that it is over.
void ClientConfiguration::stop() {
    stopped_ = true;
    again_timer_.disarm();
    if (const auto again = std::exchange(again_, nullptr)) again();
}

ClientConfig ClientConfiguration::running() const {
    ClientConfig config = settings_;
    config.sessions.clear();
    config.devices.clear();
    for (const auto& [name, session] : client_.sessions()) {
        if (!session->closing) config.sessions.push_back(session->now());
    }
    for (const auto& mapping : client_.mappings()) {
        if (!mapping->stopping()) config.devices.push_back(mapping->config());
    }
    for (const auto& device : coming_) config.devices.push_back(*device);
    return config;
}

ConfigPlan ClientConfiguration::plan_towards(const ClientConfig& wanted, How how) {
    const ClientConfig was = running();
    ConfigPlan plan{.changes = client_config_diff(was, before_, wanted)};
    find_conflicts(plan.changes, how);
    add_leaving_steps(plan, how);
    add_session_steps(plan, wanted);
    add_path_steps(plan, wanted, how);
    add_device_steps(plan, wanted);
    const auto applied = std::make_shared<Applied>(Applied{was, before_, wanted, {}});
    plan.finished = [this, applied](const std::vector<ConfigChange>& changes) {
        applied->changes = changes;
        for (const Session& session : applied->wanted.sessions) client_.keep_session(session);
        finished(applied->wanted, changes);
    };
    plan.undo = [this, applied] { return plan_back(*applied); };
    return plan;
}

ConfigPlan ClientConfiguration::plan_back(const Applied& applied) {
    const ClientConfig now = running();
    std::vector<std::string> kept;
    ConfigPlan back = plan_towards(goal_of_rollback(now, applied, kept), How::by_force);
    back.kept = std::move(kept);
    back.finished = [this, before = applied.before,
                     log_level = applied.was.log_level](const std::vector<ConfigChange>&) {
        settings_.log_level = log_level;
        before_ = before;
    };
    return back;
}

// kept: of Rollback.
ClientConfig ClientConfiguration::goal_of_rollback(const ClientConfig& now, const Applied& applied,
                                                   std::vector<std::string>& kept) {
    const ClientConfig& was = applied.was;
    const auto since = client_config_diff(now, applied.wanted, applied.wanted);
    Rollback rollback(with_devices_of_sessions(applied.changes, was), since);
    ClientConfig goal = was;
    goal.devices = rollback.objects(
        "device", now.devices, was.devices, [](const Mapped& one) { return one.name; },
        [](const Mapped&, const Mapped& former) { return former; });
    keep_used_sessions(rollback, applied.changes, since, goal.devices);
    goal.sessions = rollback.objects(
        "session", now.sessions, was.sessions, [](const Session& one) { return one.name; },
        [](const Session&, const Session& former) { return former; });
    // Their paths are objects of their own.
    for (Session& session : goal.sessions) {
        const Session* const running = find(now.sessions, session.name);
        const Session* const former = find(was.sessions, session.name);
        if (running == nullptr || former == nullptr) continue;
        session.paths = rollback.objects(
            "path", running->paths, former->paths,
            [&](const Path& path) { return path_object_name(session.name, path); },
            [](const Path&, const Path& before) { return before; });
    }
    kept = rollback.kept();
    return goal;
}

// --- What stands against it.

void ClientConfiguration::find_conflicts(std::vector<ConfigChange>& changes, How how) const {
    if (how == How::by_force) return;
    std::set<std::string> leaving;
    for (ConfigChange& change : changes) {
        if (change.object != "device" || !change.leaves()) continue;
        leaving.insert(change.name);
        const Mapping* const mapping = find_mapping(client_, change.name);
        if (mapping == nullptr) continue;
        if (mapping->connections() > 0) {
            change.conflict = "it has " + counted(mapping->connections(), "NBD client") +
                              "; --force disconnects them";
        } else if (const std::string use = kernel_use(*mapping); !use.empty()) {
            change.conflict = use + "; --force detaches it all the same";
        }
    }
    for (ConfigChange& change : changes) {
        if (change.object != "session" || change.kind != Kind::removed) continue;
        for (const auto& mapping : client_.mappings()) {
            const Mapped& device = mapping->config();
            if (device.session != change.name || leaving.contains(device.name)) continue;
            change.conflict = "device " + device.name + " is on it; --force unmaps that";
        }
    }
}

// --- What is done.

void ClientConfiguration::add_leaving_steps(ConfigPlan& plan, How how) {
    const auto unmap = how == How::gently ? Client::Unmap::if_unused : Client::Unmap::by_force;
    const auto add_unmap = [&](std::size_t index, const std::string& device) {
        plan.steps.push_back(
            {index, [this, device, unmap](const ConfigStep::Done& done) {
                 std::erase_if(coming_, [&](const auto& one) { return one->name == device; });
                 if (find_mapping(client_, device) == nullptr) return done("");
                 client_.unmap(device, unmap,
                               [done](const std::expected<Client::Gone, ControlFailure>& result) {
                                   if (!result) return done(result.error().message);
                                   done(ConfigStep::Result::lost(result->loss));
                               });
             }});
    };
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object == "device" && change.leaves()) add_unmap(i, change.name);
    }
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "session" || !change.leaves()) continue;
        // Those that rnbdctl mapped: by force only, else there is a conflict.
        for (const auto& mapping : client_.mappings()) {
            if (mapping->config().session == change.name) add_unmap(i, mapping->config().name);
        }
        plan.steps.push_back({i, [this, name = change.name](const ConfigStep::Done& done) {
                                  client_.close_session(
                                      name,
                                      [done](const std::expected<void, ControlFailure>& result) {
                                          done(text_of(result));
                                      });
                              }});
    }
}

void ClientConfiguration::add_session_steps(ConfigPlan& plan, const ClientConfig& wanted) {
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "session" || (!change.comes() && change.kind != Kind::changed))
            continue;
        const Session* const config = find(wanted.sessions, change.name);
        plan.steps.push_back({i, [this, change, session = *config](const ConfigStep::Done& done) {
                                  if (change.comes())
                                      done(text_of(client_.make_session(session)));
                                  else
                                      change_session(change, session, done);
                              }});
    }
    add_setting_steps(plan, wanted, use_log_level_);
}

void ClientConfiguration::change_session(const ConfigChange& change, const Session& wanted,
                                         const ConfigStep::Done& done) {
    const auto session = client_.find_session(change.name);
    if (!session) return done(session.error().message);
    rtrs::ClientSession& rtrs = (*session)->remote.rtrs();
    Session& config = (*session)->config;
    rtrs.set_policy(config.policy = wanted.policy);
    rtrs.set_reconnect_attempts_max(config.max_reconnect_attempts = wanted.max_reconnect_attempts);
    rtrs.set_request_deadline(config.request_deadline = wanted.request_deadline);
    config.hold_time = wanted.hold_time;
    config.fail_fast_time = wanted.fail_fast_time;
    client_.set_waiting(**session);
    done("");
}

// Of a session some of whose paths go.
struct ClientConfiguration::Replacement {
    std::vector<std::string> coming;   // labels
    std::vector<std::string> staying;  // labels
    std::optional<rtrs::Instant> deadline;
};

// First those that come, then those that go: a session has always one.
void ClientConfiguration::add_path_steps(ConfigPlan& plan, const ClientConfig& wanted, How how) {
    std::map<std::string, std::shared_ptr<Replacement>> replacements;
    for (const Session& session : wanted.sessions) {
        const auto& replacement = replacements[session.name] = std::make_shared<Replacement>();
        for (const Path& path : session.paths) replacement->staying.push_back(path.to_string());
    }
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "path" || !(change.acts() && change.kind != Kind::removed)) continue;
        const auto [session, label] = session_and_label(change.name);
        const auto& paths = find(wanted.sessions, session)->paths;
        const Path path = *std::ranges::find(paths, label, &Path::to_string);
        if (change.kind == Kind::added) replacements[session]->coming.push_back(label);
        plan.steps.push_back({i, [this, session, path, added = change.kind == Kind::added](
                                     const ConfigStep::Done& done) {
                                  if (added) return done(text_of(client_.add_path(session, path)));
                                  const auto found = client_.find_session(session);
                                  if (!found) return done(found.error().message);
                                  const auto error = (*found)->set_path_priority(path);
                                  done(error ? error.message() : "");
                              }});
    }
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "path" || change.kind != Kind::removed) continue;
        const auto [session, label] = session_and_label(change.name);
        plan.steps.push_back({i, [this, session, label, replacement = replacements[session],
                                  how](const ConfigStep::Done& done) {
                                  if (replacement->coming.empty() && how == How::by_force)
                                      return remove_path(session, label, done);
                                  if (!replacement->deadline)
                                      replacement->deadline =
                                          client_.clock().now() + replacement_time;
                                  remove_when_replaced(session, label, replacement, how, done);
                              }});
    }
}

// Waits until one of the new paths is up, or where there is none, one of those that stay, so that
// requests need not wait; not for ever, for these may lead nowhere. Then what works is kept. A path
// that is not connected goes at once.
void ClientConfiguration::remove_when_replaced(const std::string& session, const std::string& label,
                                               const std::shared_ptr<Replacement>& replacement,
                                               How how, const ConfigStep::Done& done) {
    if (stopped_) return done(why_stopped);
    const auto found = client_.find_session(session);
    if (!found) return done(found.error().message);
    if ((*found)->awaited.find(label) != nullptr) return remove_path(session, label, done);
    const rtrs::ClientSessionStatus status = (*found)->remote.rtrs().status();
    const bool replaced = !replacement->coming.empty();
    const auto& successors = replaced ? replacement->coming : replacement->staying;
    const auto succeeds = [&](const std::string& path) {
        return std::ranges::find(successors, path) != successors.end();
    };
    std::string why;
    const auto say = [&](const std::string& path, const std::string& reason) {
        why += (why.empty() ? "" : "; ") + path + ": " + reason;
    };
    for (const rtrs::PathStatus& path : status.paths) {
        const bool connected = path.state == rtrs::PathState::connected;
        if (path.label == label && !connected) return remove_path(session, label, done);
        if (!succeeds(path.label)) continue;
        if (connected) return remove_path(session, label, done);
        say(path.label, path.reason.empty() ? "does not answer" : path.reason);
    }
    for (const AwaitedPath& one : (*found)->awaited.all()) {
        if (succeeds(one.label)) say(one.label, one.reason.text);
    }
    if (!status.link_up) return remove_path(session, label, done);
    if (client_.clock().now() >= *replacement->deadline) {
        if (how == How::by_force) return remove_path(session, label, done);
        return done(std::string("it stays, because none that ") +
                    (replaced ? "comes in its place" : "is left then") + " is connected (" + why +
                    "); --force removes it all the same");
    }
    again_ = [this, session, label, replacement, how, done] {
        remove_when_replaced(session, label, replacement, how, done);
    };
    again_timer_.arm(client_.clock().now() + look_interval);
}

void ClientConfiguration::remove_path(const std::string& session, const std::string& label,
                                      const ConfigStep::Done& done) {
    const auto found = client_.find_session(session);
    if (!found) return done(found.error().message);
    if ((*found)->paths().size() == 1) return done(why_not_the_last);
    if ((*found)->forget_awaited(label)) return done("");
    const auto error =
        (*found)->remote.rtrs().operate_path(label, rtrs::ClientSession::PathOperation::remove);
    if (error && error != std::errc::no_such_file_or_directory) {
        return done(error == std::errc::device_or_resource_busy ? why_not_the_last
                                                                : error.message());
    }
    wait_for_end(session, label, done);
}

void ClientConfiguration::wait_for_end(const std::string& session, const std::string& label,
                                       const ConfigStep::Done& done) {
    if (stopped_) return done(why_stopped);
    const auto found = client_.find_session(session);
    if (!found) return done("");
    const rtrs::ClientSessionStatus status = (*found)->remote.rtrs().status();
    if (std::ranges::find(status.paths, label, &rtrs::PathStatus::label) == status.paths.end()) {
        return done("");
    }
    again_ = [this, session, label, done] { wait_for_end(session, label, done); };
    again_timer_.arm(client_.clock().now() + look_interval);
}

void ClientConfiguration::add_device_steps(ConfigPlan& plan, const ClientConfig& wanted) {
    for (std::size_t i = 0; i < plan.changes.size(); ++i) {
        const ConfigChange& change = plan.changes[i];
        if (change.object != "device" || !change.comes()) continue;
        const Mapping* const now = find_mapping(client_, change.name);
        plan.steps.push_back(
            {i, [this, device = *find(wanted.devices, change.name),
                 old = now == nullptr ? std::nullopt : std::optional(now->config())](
                    const ConfigStep::Done& done) { map(device, old, done); }});
    }
}

bool ClientConfiguration::is_coming(const std::string& device) const noexcept {
    return std::ranges::any_of(coming_, [&](const auto& one) { return one->name == device; });
}

// old: what it takes the place of, which is back if it cannot be.
void ClientConfiguration::map(const Mapped& device, const std::optional<Mapped>& old,
                              const ConfigStep::Done& done) {
    if (const Mapping* const former = client_.leaving(device)) {
        const std::string name = former->config().name;
        logger("rnbd.device")
            .info("{}: mapped later: device {} is still being unmapped", device.name, name);
        const auto& one = coming_.emplace_back(std::make_shared<const Mapped>(device));
        const auto gone = [this, one, old, done](const auto&) {
            if (std::erase(coming_, one) == 0)
                return done("it was removed before it could be mapped");
            map(*one, old, done);
        };
        return client_.unmap(name, Client::Unmap::if_unused, gone);
    }
    using Result = std::expected<void, ControlFailure>;
    client_.map(device, nullptr, [this, old, done](const Result& mapped) {
        if (mapped || !old) return done(text_of(mapped));
        client_.map(*old, nullptr, [done, failure = text_of(mapped)](const Result& back) {
            done(failure + (back ? "; it is as it was before" : "; " + text_of(back)));
        });
    });
}

// A path of a session that stays.
void ClientConfiguration::keep_path(ClientConfig& wanted, const std::string& object) const {
    const auto [name, label] = session_and_label(object);
    const Session* const before = find(before_.sessions, name);
    const auto session = std::ranges::find(wanted.sessions, name, &Session::name);
    if (before == nullptr || session == wanted.sessions.end()) return;
    const auto path = std::ranges::find(before->paths, label, &Path::to_string);
    if (path != before->paths.end()) session->paths.push_back(*path);
}

void ClientConfiguration::forget_path(ClientConfig& wanted, const std::string& object) const {
    const auto [name, label] = session_and_label(object);
    const auto running = client_.find_session(name);
    const auto session = std::ranges::find(wanted.sessions, name, &Session::name);
    if (!running || session == wanted.sessions.end()) return;
    const auto paths = (*running)->paths();
    if (std::ranges::find(paths, label, &Path::to_string) != paths.end()) return;
    std::erase_if(session->paths, [&](const Path& path) { return path.to_string() == label; });
}

// What could not be removed is still one of the files' objects: the next time tries it again. What
// could not be made is none yet: that it is not there is no doing of rnbdctl's.
void ClientConfiguration::finished(ClientConfig wanted, const std::vector<ConfigChange>& changes) {
    for (const ConfigChange& change : changes) {
        if (change.failure.empty()) continue;
        if (change.comes() && change.object == "device" && !find_mapping(client_, change.name) &&
            !is_coming(change.name)) {
            std::erase_if(wanted.devices,
                          [&](const Mapped& one) { return one.name == change.name; });
        }
        if (change.kind == Kind::replaced && change.object == "device") {
            const Mapping* const kept = find_mapping(client_, change.name);
            const auto of_name = std::ranges::find(wanted.devices, change.name, &Mapped::name);
            if (kept != nullptr && of_name != wanted.devices.end()) *of_name = kept->config();
        }
        if (change.comes() && change.object == "session" &&
            !client_.sessions().contains(change.name)) {
            std::erase_if(wanted.sessions,
                          [&](const Session& one) { return one.name == change.name; });
        }
        if (change.kind == Kind::added && change.object == "path") forget_path(wanted, change.name);
        if (change.kind != Kind::removed) continue;
        if (change.object == "path") keep_path(wanted, change.name);
        const Mapped* const device = find(before_.devices, change.name);
        const Session* const session = find(before_.sessions, change.name);
        if (change.object == "device" && device != nullptr) wanted.devices.push_back(*device);
        if (change.object == "session" && session != nullptr) wanted.sessions.push_back(*session);
    }
    settings_.log_level = wanted.log_level;
    before_ = std::move(wanted);
}

}  // namespace rnbd
