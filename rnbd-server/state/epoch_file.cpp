#include "rnbd-server/state/epoch_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <expected>
#include <sstream>
#include <utility>

#include "daemon/log/log.h"
#include "rnbd-server/storage/cache_epoch.h"
#include "rtrs/base/error.h"
#include "rtrs/base/random.h"

namespace rnbd {
namespace {

constexpr std::string_view first_line = "rnbd-server epochs 1";
constexpr std::string_view flushed_word = "flushed";
constexpr std::string_view lost_word = "lost";
constexpr std::string_view in_use_word = "in-use";

// Many losses at a time cost a tenth of the time beyond the wait for one.
constexpr int loss_share = 10;

std::uint64_t new_salt() { return rtrs::Random::from_entropy().next() | 1; }

}  // namespace

EpochFile::EpochFile(rtrs::Reactor& reactor, std::string path,
                     WaitBudget::Clock::duration loss_wait)
    : wait_budget_(loss_wait, loss_share),
      file_(
          reactor, std::move(path), [this] { return text(); },
          [this](std::error_code error) { ended(error); }) {}

std::error_code EpochFile::load() {
    const std::expected<std::string, std::error_code> text = file_.read();
    if (!text)
        return text.error() == std::errc::no_such_file_or_directory ? std::error_code{}
                                                                    : distrust(text.error());
    if (!parse(*text)) {
        // What it said of a loss is not known. An empty one is right for the next server.
        entries_.clear();
        const std::error_code error = file_.write();
        return distrust(error ? error : rtrs::from_errno(EBADMSG));
    }
    // As it is: whether it can be.
    const std::error_code error = file_.write();
    return error ? distrust(error) : error;
}

bool EpochFile::parse(const std::string& text) {
    std::istringstream file(text);
    std::string line;
    if (!std::getline(file, line) || line != first_line) return false;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string medium;
        std::string state;
        Entry entry;
        words >> medium >> std::hex >> entry.storage_epoch >> entry.shown >> state;
        entry.flushed = state == flushed_word;
        entry.lost = state == lost_word;
        if (!words || (!entry.flushed && !entry.lost && state != in_use_word)) return false;
        entries_.of(medium) = entry;
    }
    return true;
}

// What the file says of being flushed will be wrong soon, and nobody may believe it; what it says
// of being lost stays there.
std::error_code EpochFile::distrust(std::error_code error) {
    entries_.clear();
    salt_ = new_salt();
    return error;
}

std::error_code EpochFile::begin() {
    begun_ = true;
    return changed_ && is_kept() ? file_.write() : std::error_code{};
}

EpochFile::Ticket EpochFile::opens(const std::string& medium, std::uint64_t storage_epoch) {
    if (storage_epoch <= epoch_without_cache) return 0;
    Entry& entry = entries_.of(medium);
    // Of this life alone.
    for (const std::uint64_t salt : {salt_, entry.salt}) {
        if (salt != 0) storage_epoch = mix_epoch(storage_epoch, salt);
    }
    const bool same = entry.storage_epoch == storage_epoch && !entry.lost;
    if (entry.lost) {
        entry.shown = mix_epoch(storage_epoch, rtrs::Random::from_entropy().next());
    } else if (!same && !entry.flushed && !entry.was_flushed) {
        entry.shown = storage_epoch;
    }
    entry.was_flushed |= std::exchange(entry.flushed, false);
    entry.lost = false;
    entry.storage_epoch = storage_epoch;
    if (!entry.was_flushed && (same || entry.shown == storage_epoch)) return 0;
    changed_ = true;
    return begun_ ? write_now() : 0;
}

std::uint64_t EpochFile::opened(const std::string& medium, std::uint64_t storage_epoch,
                                Ticket ticket) {
    if (storage_epoch <= epoch_without_cache) return storage_epoch;
    Entry& entry = entries_.of(medium);
    const bool was_flushed = std::exchange(entry.was_flushed, false);
    if (was_flushed && !file_.is_written(ticket)) {
        // The file may say so of it for long: the next server shows what was shown then, and this
        // one something else, or a crash would not be told. Without a need, that tells at most of
        // a loss that was none.
        entry.salt = new_salt();
        entry.storage_epoch = entry.shown = mix_epoch(storage_epoch, entry.salt);
    }
    return entry.shown;
}

void EpochFile::was_not_opened(const std::string& medium) {
    Entry* const entry = entries_.find(medium);
    if (entry != nullptr) entry->flushed |= std::exchange(entry->was_flushed, false);
}

void EpochFile::flushed(const std::string& medium) {
    Entry* const entry = entries_.find(medium);
    if (entry != nullptr && !entry->empty()) entry->flushed = true;
}

void EpochFile::lost(const std::string& medium) {
    Entry* const entry = entries_.find(medium);
    if (entry == nullptr || entry->empty()) return;
    entry->lost = true;
    if (!is_kept()) return;
    const auto left = wait_budget_.left();
    const auto begun = WaitBudget::Clock::now();
    if (left > WaitBudget::Clock::duration::zero()) {
        const std::error_code error = file_.write_within(left);
        wait_budget_.spend(WaitBudget::Clock::now() - begun);
        if (!error) return;
        // It goes on, and then says how it has ended.
        if (error == std::errc::timed_out) {
            logger("rnbd.server")
                .warn(
                    "{}: takes long to write: if the server is killed before it is written, "
                    "clients are not told of the writes that were lost now",
                    path());
        } else {
            ended(error);
        }
    }
    file_.write_now();
}

std::error_code EpochFile::save() { return is_kept() ? file_.save() : std::error_code{}; }

void EpochFile::ended(std::error_code error) {
    if (error && error != logged_error_) {
        logger("rnbd.server")
            .error(
                "{}: {}; expected to note there which exports are in use, and which have lost "
                "writes: after a restart clients may be told of a loss that was none, or not of "
                "one that was",
                path(), error.message());
    }
    logged_error_ = error;
}

std::string EpochFile::text() const {
    std::string text = fmt::format("{}\n", first_line);
    entries_.for_each([&](const std::string& medium, const Entry& entry) {
        if (entry.empty()) return;
        text += fmt::format("{} {:016x} {:016x} {}\n", medium, entry.storage_epoch, entry.shown,
                            entry.lost      ? lost_word
                            : entry.flushed ? flushed_word
                                            : in_use_word);
    });
    return text;
}

}  // namespace rnbd
