// Volume: who may have it open, and writers that may come back.

#include <algorithm>
#include <utility>

#include "daemon/log/log.h"
#include "rnbd-server/volume.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {

bool Volume::allows(const std::string& session, const std::string& host,
                    AccessMode access) const noexcept {
    return std::ranges::any_of(config_.allow, [&](const ServerConfig::Allow& allow) {
        return allow.session == session && (!allow.address || allow.address->contains(host)) &&
               access <= allow.access;
    });
}

bool Volume::is_shut_out(const std::string& session) const noexcept {
    const auto found = shut_out_.find(session);
    return found != shut_out_.end() && reactor_.now() < found->second;
}

std::error_code Volume::may_open(const Opener& opener) const {
    if (!allows(opener.session, opener.host, opener.access)) return rtrs::from_errno(EACCES);
    if (is_shut_out(opener.session)) return rtrs::from_errno(EBUSY);
    if (stands_for_another(opener.expects)) return rtrs::from_errno(EMEDIUMTYPE);
    if (opener.access == AccessMode::read_only) return {};
    if (only_reads()) return rtrs::from_errno(EROFS);
    if (opener.writer != 0 && is_out(opener.writer)) return rtrs::from_errno(ESTALE);
    if (is_awaited_by_another(opener)) return rtrs::from_errno(EAGAIN);
    // Who opened it on a storage that is gone writes no more.
    const auto writers = std::ranges::count_if(opens_, [this](const auto& open) {
        return open->access != AccessMode::read_only && open->generation == generation_;
    });
    if (writers == 0) return {};
    // The two writers of a migration may come back in any order, including the one that was alone
    // at first.
    const bool second =
        opener.access == AccessMode::migration ||
        (writers_->knows(opener.writer) && std::ranges::all_of(opens_, [](const auto& open) {
             return open->access != AccessMode::read_write;
         }));
    if (writers > 1 || !second) return rtrs::from_errno(EPERM);
    return {};
}

// A writer that had the volume open when its storage, or the server, went away comes before one
// that has waited for the volume. Otherwise the latter's first write would put the former out.
bool Volume::is_awaited_by_another(const Opener& opener) const {
    if (writers_ == nullptr || reactor_.now() >= return_until_) return false;
    // A kernel client has no writer number, and does not ask again.
    if (opener.writer == 0 || writers_->knows(opener.writer)) return false;
    const std::vector<Writers::One> others = away();
    return std::ranges::any_of(others, [&](const auto& one) {
        return one.session != opener.session && one.export_name == config_.name;
    });
}

std::expected<Volume::Open*, std::error_code> Volume::open(const Opener& opener) {
    if (const auto error = may_open(opener)) return std::unexpected(error);
    if (state() == State::waiting) return std::unexpected(rtrs::from_errno(ENOENT));
    auto open = std::make_unique<Open>(Open{.session = opener.session,
                                            .access = opener.access,
                                            .writers = writers_,
                                            .holder = opener.holder,
                                            .generation = generation_,
                                            .losses_told = losses_,
                                            .reopens = opener.reopens,
                                            .medium = geometry_.medium,
                                            .logical_block_bytes = geometry_.logical_block_bytes,
                                            .cache_epoch = cache_.epoch()});
    if (opener.access != AccessMode::read_only) {
        ++writers_open_;
        is_writer(*open, opener.writer);
    }
    return opens_.emplace_back(std::move(open)).get();
}

// Its device would fail for ever otherwise: it is open as far as that client knows, and cannot be
// mapped again. What was lost meanwhile is told by its next flush.
void Volume::go_on_with_those_who_stay() {
    for (const auto& open : opens_) {
        const bool same = open->medium.known() && geometry_.medium.known() &&
                          !open->medium.rules_out(geometry_.medium) &&
                          open->logical_block_bytes == geometry_.logical_block_bytes;
        if (open->reopens == Reopens::yes || open->ends || !same) continue;
        open->generation = generation_;
        open->writers = writers_;
        open->wrote = false;
        if (std::exchange(open->cache_epoch, cache_.epoch()) != cache_.epoch()) {
            open->losses_told = losses_ - 1;
        }
    }
}

void Volume::close(Open* open) {
    RTRS_ASSERT(open->in_flight == 0);
    if (open->access != AccessMode::read_only) --writers_open_;
    std::erase_if(opens_, [&](const auto& one) { return one.get() == open; });
    // Another writer that has the volume open (migration) must put out the one that is away now.
    for (const auto& one : opens_) one->wrote = false;
}

// --- Writers.

void Volume::is_writer(Open& open, Writers::Id writer) {
    if (writer == 0 || writer == open.writer) return;
    const bool changed = open.writer != 0 && open.writers->closes(open.writer);
    open.writer = writer;
    const Writers::News news =
        open.writers->opens({writer, open.session, config_.name}, writers_here(nullptr));
    const bool shared = others_may_write(open.session);
    if (news == Writers::News::out || (news == Writers::News::known && shared)) {
        const WriterFile::Ticket ticket = writers_file_.write_now();
        if (shared) let_in_ = ticket;
        if (news == Writers::News::out) put_out_ = ticket;
    } else if (changed || news == Writers::News::known) {
        writers_file_.changed();
    }
    if (news != Writers::News::out) return;
    // As when a write puts a writer out: the next write waits until that is in the file.
    for (const auto& one : opens_) one->wrote = false;
    open.wrote = false;
}

// Whether sessions other than this one may write. If not, nobody can put this session's writers
// out, whatever the next server remembers of them, and a machine that maps a thousand volumes need
// not wait for as many writes of the writers' file.
bool Volume::others_may_write(const std::string& session) const noexcept {
    return std::ranges::any_of(config_.allow, [&](const ServerConfig::Allow& allow) {
        return allow.session != session && allow.access != AccessMode::read_only;
    });
}

void Volume::says_goodbye(Open& open) {
    if (open.writer != 0 && open.writers->closes(open.writer)) writers_file_.changed();
    open.writer = 0;
}

void Volume::ends(Open& open) noexcept {
    open.ends = true;
    for (const auto& one : opens_) one->wrote = false;
}

bool Volume::is_here(const Open& open) const noexcept {
    return !open.ends && open.generation == generation_ &&
           (open.holder == nullptr || open.holder->connected());
}

std::vector<Writers::Id> Volume::writers_here(const Open* and_this) const {
    std::vector<Writers::Id> here;
    for (const auto& one : opens_) {
        if (one->writer != 0 && (one.get() == and_this || is_here(*one)))
            here.push_back(one->writer);
    }
    return here;
}

std::vector<Writers::One> Volume::away() const {
    if (writers_ == nullptr) return {};
    const std::vector<Writers::Id> here = writers_here(nullptr);
    std::vector<Writers::One> away = writers_->known();
    std::erase_if(away,
                  [&](const auto& one) { return std::ranges::find(here, one.id) != here.end(); });
    return away;
}

// The first write after another holder has left: from now on the writes that absent writers hold
// are out of date.
bool Volume::may_write_first(Open& open) {
    const std::vector<Writers::One> away = open.writers->writes(writers_here(&open));
    for (const Writers::One& one : away) {
        for (const auto& other : opens_) other->is_out |= other->writer == one.id;
        logger("rnbd.volume")
            .warn(
                "{}: {} writes, while {} is away and may still hold writes: that one is not let "
                "in again before it has mapped the volume again",
                config_.name, printable(open.session), printable(one.session));
    }
    if (!away.empty()) put_out_ = writers_file_.write_now();
    // Otherwise their requests at the storage could end after this write.
    const bool others_end = std::ranges::any_of(
        opens_, [](const auto& other) { return other->is_out && other->in_flight > 0; });
    open.wrote = writers_file_.is_written(put_out_) && !others_end;
    return open.wrote;
}

}  // namespace rnbd
