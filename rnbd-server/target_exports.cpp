// The exports of a Target, which are added, removed and changed while sessions run. See target.h.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/log/log.h"
#include "rnbd-server/target_inside.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/seconds.h"

namespace rnbd {
namespace {

// The same as at the server's end: more than a busy disk takes for a flush.
constexpr rtrs::Duration removal_timeout = std::chrono::seconds(20);

}  // namespace

Volume* Target::find(const std::string& name) noexcept {
    const auto found = by_name_.find(name);
    if (found == by_name_.end() || leaving_.contains(found->second)) return nullptr;
    return found->second;
}

ControlFailure Target::why_none(const std::string& name) const {
    if (by_name_.contains(name)) {
        return {ControlError::busy, "export " + name + ": " + why_leaving};
    }
    return {ControlError::not_found, "there is no export " + name};
}

Volume& Target::own(ServerConfig::Export config) {
    volumes_.push_back(std::make_unique<Volume>(
        reactor_,
        Volume::Shared{
            .deferred = deferred_, .claims = claims_, .epochs = epochs_, .writers = writers_},
        std::move(config)));
    Volume& volume = *volumes_.back();
    by_name_.emplace(volume.name(), &volume);
    by_place_.emplace(volume.config().storage.place(), &volume);
    volume.report_to(*this);
    return volume;
}

void Target::disown(Volume& volume) {
    const std::string name = volume.name();
    by_name_.erase(name);
    const auto [first, last] = by_place_.equal_range(volume.config().storage.place());
    by_place_.erase(
        std::find_if(first, last, [&](const auto& one) { return one.second == &volume; }));
    std::erase_if(volumes_, [&](const auto& one) { return one.get() == &volume; });
}

std::optional<Target::Obstacle> Target::obstacle_to(const ServerConfig::Export& config) const {
    std::optional<Obstacle> goes;
    const auto stays = [](std::string text) {
        return Obstacle{Obstacle::Lasts::on, {ControlError::exists, std::move(text)}};
    };
    const auto is_going = [&](const Volume& volume, const std::string& text) {
        if (!leaving_.contains(&volume)) return false;
        if (!goes) {
            goes = Obstacle{Obstacle::Lasts::until_gone,
                            {ControlError::exists, text + " is still being removed"}};
        }
        return true;
    };
    const auto namesake = by_name_.find(config.name);
    if (namesake != by_name_.end() && !is_going(*namesake->second, "export " + config.name))
        return stays("an export " + config.name + " is there already");
    for (const auto& other : volumes_) {
        if (other->name() == config.name || other->may_share_uuid(config.storage)) continue;
        const std::string who = "export " + other->name();
        if (!is_going(*other, who + ", which has this uuid,"))
            return stays(who + " has the uuid " + to_text(*config.storage.uuid) + " already");
    }
    const std::string& place = config.storage.place();
    if (place.empty()) return goes;
    const auto [first, last] = by_place_.equal_range(place);
    for (auto other = first; other != last; ++other) {
        const Volume& volume = *other->second;
        if (volume.config().storage.may_share_place(config.storage)) continue;
        const std::string who = "export " + volume.name();
        if (!is_going(volume, fmt::format("{}, which has {},", who, place)))
            return stays(
                fmt::format("{} has {} already; only exports that are both read_only may share it",
                            who, place));
    }
    return goes;
}

std::expected<void, ControlFailure> Target::add_export(ServerConfig::Export config) {
    if (is_coming(config.name)) {
        return command_failed(ControlError::exists,
                              "export " + config.name + " is about to be added already");
    }
    if (auto obstacle = obstacle_to(config)) return std::unexpected(std::move(obstacle->failure));
    logger("rnbd.volume").info("{}: added", config.name);
    own(std::move(config));
    catalog_.changed();
    return {};
}

// --- Additions that wait for removals.

void Target::add_export_when_free(ServerConfig::Export config, Added added) {
    const auto obstacle = obstacle_to(config);
    if (!obstacle || obstacle->lasts == Obstacle::Lasts::on || is_coming(config.name)) {
        return added(add_export(std::move(config)));
    }
    logger("rnbd.volume").info("{}: added later: {}", config.name, obstacle->failure.message);
    MediumClaims::Claim claim;
    if (config.storage.uuid && !config.storage.only_reads())
        claim = claims_.claim(*config.storage.uuid, config.name).value_or(nullptr);
    coming_.push_back({std::move(config), std::move(added), std::move(claim)});
}

std::vector<ServerConfig::Export> Target::coming() const {
    std::vector<ServerConfig::Export> configs;
    for (const Coming& one : coming_) configs.push_back(one.config);
    return configs;
}

bool Target::is_coming(const std::string& name) const noexcept {
    return std::ranges::any_of(coming_, [&](const auto& one) { return one.config.name == name; });
}

void Target::change_coming(ServerConfig::Export config) {
    const auto found = std::ranges::find_if(
        coming_, [&](const auto& one) { return one.config.name == config.name; });
    RTRS_ASSERT(found != coming_.end());
    found->config = std::move(config);
}

// Called after an export is gone. Adds one at a time, because the callback of an addition may ask
// for others.
void Target::add_coming() {
    while (!ending_) {
        const auto next = std::ranges::find_if(coming_, [this](const Coming& one) {
            const auto obstacle = obstacle_to(one.config);
            return !obstacle || obstacle->lasts == Obstacle::Lasts::on;
        });
        if (next == coming_.end()) return;
        const Coming one = std::move(*next);
        coming_.erase(next);
        const auto added = add_export(one.config);
        if (!added) {
            logger("rnbd.volume")
                .error("{}: not added: {}", one.config.name, added.error().message);
        }
        one.added(added);
    }
}

// The export that it waits for is removed nevertheless.
void Target::remove_coming(const std::string& name, Removed done) {
    const auto found =
        std::ranges::find_if(coming_, [&](const auto& one) { return one.config.name == name; });
    const Added added = std::move(found->added);
    coming_.erase(found);
    logger("rnbd.volume").info("{}: not added any more", name);
    if (const auto former = by_name_.find(name); former != by_name_.end()) {
        leaving_.at(former->second).waiting.push_back(std::move(done));
    } else {
        reactor_.post([done = std::move(done)] { done({}); });
    }
    added(command_failed(ControlError::failed, "it was removed before it could be added"));
}

std::string Target::loss_of(std::error_code last_flush) {
    return "its last flush failed (" + last_flush.message() + "): acknowledged writes may be lost";
}

std::expected<void, ControlFailure> Target::remove_export(const std::string& name, Removal how,
                                                          Removed done) {
    Volume* const volume = find(name);
    if (volume == nullptr && !is_coming(name)) {
        const auto leaves = by_name_.find(name);
        if (leaves == by_name_.end()) return std::unexpected(why_none(name));
        leaving_.at(leaves->second).waiting.push_back(std::move(done));
        return {};
    }
    // The storages are being flushed, and a storage that is busy cannot be removed.
    if (ending_) return command_failed(ControlError::stopping, "rnbd-server is stopping");
    if (volume == nullptr) {
        remove_coming(name, std::move(done));
        return {};
    }
    if (how == Removal::if_unused && !volume->opens().empty()) {
        return command_failed(ControlError::busy, "export " + name + " is open by " +
                                                      holders_of(*volume) +
                                                      "; --force takes it from them");
    }
    logger("rnbd.volume").info("{}: being removed", name);
    ask_opens_without_storage_again();
    Leaving& leaving = leaving_.try_emplace(volume, reactor_, *volume).first->second;
    leaving.waiting.push_back(std::move(done));
    leaving.give_up_timer.arm(reactor_.now() + removal_timeout);
    if (volume->opens().empty()) {
        leave(*volume);
    } else {
        take_away(*volume, nullptr);
    }
    return {};
}

std::expected<void, ControlFailure> Target::evict(const std::string& name,
                                                  const std::string& session, rtrs::Duration out) {
    Volume* const volume = find(name);
    if (volume == nullptr) return std::unexpected(why_none(name));
    const bool open = std::ranges::any_of(volume->opens(),
                                          [&](const auto& one) { return one->session == session; });
    if (!open && !volume->is_shut_out(session)) {
        return command_failed(
            ControlError::not_found,
            "export " + name + " is not open by session " + session +
                (volume->opens().empty() ? "" : "; it is by " + holders_of(*volume)));
    }
    volume->shut_out(session, reactor_.now() + out);
    if (out > rtrs::Duration::zero()) {
        logger("rnbd.session")
            .info("{}: may not open {} for {:.9g} s", printable(session), name,
                  rtrs::in_seconds(out));
    } else {
        logger("rnbd.session").info("{}: may open {} again", printable(session), name);
    }
    take_away(*volume, &session);
    return {};
}

void Target::set_draining(Draining draining) {
    if (draining_ != draining) {
        draining_since_ = reactor_.now();
        logger("rnbd.server")
            .info("{}", draining == Draining::on
                            ? "draining: no session comes in, nothing is opened"
                            : "no longer draining: sessions may come in");
    }
    draining_ = draining;
    ask_opens_without_storage_again();
    catalog_.intend(draining == Draining::on ? ServerIntent::drain : ServerIntent::serve);
}

void Target::evict_all() {
    for (const auto& volume : volumes_) take_away(*volume, nullptr);
}

void Target::set_allow(Volume& volume, std::vector<ServerConfig::Allow> allow) {
    volume.set_allow(std::move(allow));
    ask_opens_without_storage_again();
    for (Session* session : sessions_) {
        std::vector<std::uint32_t> denied;
        for (const auto& [id, open] : session->opens) {
            if (open.volume == &volume &&
                !volume.allows(session->session.name(), session->session.peer_host(), open.access))
                denied.push_back(id);
        }
        for (const std::uint32_t id : denied) take_away(*session, id);
        if (!denied.empty()) catalog_.taken(session->session, volume);
    }
    catalog_.changed();
}

// only_session: null for all sessions.
void Target::take_away(Volume& volume, const std::string* only_session) {
    for (Session* session : sessions_) {
        if (only_session != nullptr && session->session.name() != *only_session) continue;
        std::vector<std::uint32_t> ids;
        for (const auto& [id, open] : session->opens) {
            if (open.volume == &volume) ids.push_back(id);
        }
        if (!ids.empty()) catalog_.taken(session->session, volume);
        for (const std::uint32_t id : ids) take_away(*session, id);
    }
}

// From now on the session's requests for the volume are answered with ENOTCONN, as for a device
// that was never open. Our client then opens it again, and is told why it may not.
void Target::take_away(Session& session, std::uint32_t device_id) {
    OpenVolume& open = session.opens.find(device_id)->second;
    if (open.taken) return;
    open.taken = true;
    logger("rnbd.session")
        .info("{}: {} is taken from it", printable(session.session.name()), open.name);
    if (open.open->in_flight > 0) return open.volume->ends(*open.open);
    Volume& volume = *open.volume;
    volume.close(open.open);
    session.opens.erase(device_id);
    closed_one(volume);
}

void Target::closed_one(Volume& volume) {
    if (leaving_.contains(&volume) && volume.opens().empty()) leave(volume);
}

// Nobody has the volume open, and nobody can open it: the last flush follows, then its end.
void Target::leave(Volume& volume) {
    Leaving& end = leaving_.at(&volume);
    if (std::exchange(end.flushing, true)) return;
    end.give_up_timer.arm(reactor_.now() + removal_timeout);
    volume.flush([this, leaving = &volume](std::error_code error) {
        // In a turn of its own, because the storage is still busy with the flush that has ended.
        reactor_.post([this, leaving, error] {
            leaving->let_go();
            // Before that, the other workers keep its file open, and who comes next would find it
            // in use.
            reactor_.when_unregistered([this, leaving, error] { has_left(*leaving, error); });
        });
    });
}

void Target::has_left(Volume& volume, std::error_code last_flush) {
    const std::string name = volume.name();
    const auto found = leaving_.find(&volume);
    const auto waiting = std::move(found->second.waiting);
    leaving_.erase(found);
    disown(volume);
    logger("rnbd.volume").info("{}: removed", name);
    catalog_.changed();
    add_coming();
    for (const auto& done : waiting) done(last_flush);
}

void Target::on_volume_resized(Volume&) { catalog_.changed(); }

// Sessions that opened the volume meanwhile were told the smaller size.
void Target::on_volume_keeps_size(Volume& volume) { catalog_.tell_size(volume); }

// A session that knows epochs opens the volume again, sees another epoch, and knows which of its
// flushes have to fail. For any other session its next flush fails.
void Target::on_volume_epoch(Volume& volume) {
    for (Session* session : sessions_) {
        if (!has(session->features, Feature::epoch)) continue;
        for (auto& [id, open] : session->opens) {
            if (open.volume == &volume && open.access != AccessMode::read_only) {
                open.asks_anew = true;
            }
        }
    }
}

void Target::on_volume_state(Volume&) {
    catalog_.changed();
    ask_opens_without_storage_again();
}

}  // namespace rnbd
