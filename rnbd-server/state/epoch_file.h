// Distinguishes an orderly restart of the machine from a crash. The epoch of an export's cache
// changes when the machine boots. But after an orderly end, with everything flushed, nothing was
// lost, and clients must not be told of a loss. So the epoch that was shown to clients is kept in a
// file, and shown again if the export was flushed at the end. In addition, writes that could not be
// written back are lost without a restart of the machine; the system reports that only once, to the
// server that runs then.
//
//   In the file           Next server, same boot      Next server, another boot
//   flushed               shows the same              shows the same, now for this boot
//   in use                shows the same              shows the boot's own
//   lost                  shows one of its own        shows one of its own
//
// The file says "in use" of an export before anybody can write to the export; but no export waits
// for long if the disk of the file hangs. If this server never opens an export, because its disk is
// not there or something else prevents it, the file keeps what it says. Media are named by
// medium_name(), not by their exports.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

#include "rnbd-server/state/medium_records.h"
#include "rnbd-server/state/state_file.h"
#include "rnbd-server/storage/wait_budget.h"
#include "rtrs/reactor.h"

namespace rnbd {

class EpochFile {
  public:
    using Ticket = StateFile::Ticket;
    // Longer than a busy disk takes.
    static constexpr WaitBudget::Clock::duration loss_wait_default = std::chrono::milliseconds(100);

    // path: empty to keep nothing. reactor: outlives this. loss_wait: see lost().
    EpochFile(rtrs::Reactor& reactor, std::string path,
              WaitBudget::Clock::duration loss_wait = loss_wait_default);
    EpochFile(const EpochFile&) = delete;
    EpochFile& operator=(const EpochFile&) = delete;

    const std::string& path() const noexcept { return file_.path(); }
    // Called before anything else. An absent file counts as an empty one. After an error, clients
    // are shown epochs that nobody has seen before.
    // ERRORS: those of reading or rewriting the file, which then stays as it is; EBADMSG (the file
    // did not have the right form, and was replaced).
    std::error_code load();
    // Called before anybody can write to the media that were opened so far, which are not in the
    // file yet.
    // ERRORS: those of writing the file.
    std::error_code begin();
    // Kept for as long as the medium is exported: it is not forgotten meanwhile.
    std::shared_ptr<const void> hold(const std::string& medium) { return entries_.hold(medium); }
    // Called before opens(), if the medium had another name before: MediumRecords::take_over().
    void take_over(const std::string& medium, const std::string& former) {
        entries_.take_over(medium, former);
    }

    // An export is being opened, and its storage has this epoch. Nobody may write to it before
    // is_over() is true for the ticket.
    Ticket opens(const std::string& medium, std::uint64_t storage_epoch);
    bool is_over(Ticket ticket) const noexcept { return file_.is_over(ticket); }
    // The epoch to show for the medium from now on. If the file may still say that the medium was
    // flushed, because it could not be written or was not waited for, the epoch is one that nobody
    // has seen before.
    std::uint64_t opened(const std::string& medium, std::uint64_t storage_epoch, Ticket ticket);
    // The medium was not opened after all, so nobody could write to it.
    void was_not_opened(const std::string& medium);
    // Nothing was written since the last flush, and nothing will be.
    void flushed(const std::string& medium);
    // Writes were lost: when the medium is opened after this, another epoch is shown. Nobody should
    // hear of the loss before the file has it, since the server may be killed at once. So this
    // waits for the file for a moment, in which the loop stands still; for many losses together
    // not much longer. Errors of writing the file, and that it takes longer, are logged, and it is
    // tried again.
    void lost(const std::string& medium);
    // Called at the end.
    // ERRORS: as StateFile::save().
    std::error_code save();

  private:
    struct Entry {
        std::uint64_t storage_epoch = 0;
        std::uint64_t shown = 0;
        std::uint64_t salt = 0;  // makes the epochs shown in this life new ones; 0: none
        bool flushed = false;
        bool was_flushed = false;  // before this opening; the file may still say so
        bool lost = false;

        bool empty() const noexcept { return storage_epoch == 0; }
    };
    bool parse(const std::string& text);
    bool is_kept() const noexcept { return salt_ == 0; }
    Ticket write_now() { return is_kept() ? file_.write_now() : 0; }
    std::string text() const;
    void ended(std::error_code error);
    std::error_code distrust(std::error_code error);

    MediumRecords<Entry> entries_;
    std::uint64_t salt_ = 0;  // the salt of all media; 0: the file can be relied on
    std::error_code logged_error_;
    WaitBudget wait_budget_;  // for losses
    bool begun_ = false;
    bool changed_ = false;  // something changed before begin()
    StateFile file_;
};

}  // namespace rnbd
