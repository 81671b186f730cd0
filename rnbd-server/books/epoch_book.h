// Tells a machine that was restarted in order from one that crashed. The epoch of an export's cache
// changes with the machine's boot; but after an orderly end, with everything flushed, nothing was
// lost, and clients must not be told otherwise. So the epoch that was shown is kept in a file and
// shown again, if its export was flushed last. And writes that could not be written back are lost
// without any restart of the machine: the system tells that once, to the server of then.
//
//   In the file           Next server, same boot      Next server, another boot
//   flushed               shows the same              shows the same, now for this boot
//   in use                shows the same              shows the boot's own
//   lost                  shows one of its own        shows one of its own
//
// The file says "in use" of an export before anybody can write to it; but none waits for long for a
// disk that hangs. Of one that this server never opens, since its disk is not there or another
// thing keeps it from starting, it says what it said. Media are named as medium_name() does, not by
// their exports.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

#include "rnbd-server/books/medium_records.h"
#include "rnbd-server/books/state_file.h"
#include "rtrs/reactor.h"

namespace rnbd {

class EpochBook {
  public:
    using Ticket = StateFile::Ticket;

    // path: empty for nothing to be kept. reactor: outlives it.
    EpochBook(rtrs::Reactor& reactor, std::string path);
    EpochBook(const EpochBook&) = delete;
    EpochBook& operator=(const EpochBook&) = delete;

    const std::string& path() const noexcept { return file_.path(); }
    // Before anything else. A file that is absent is an empty one. ERRORS: of reading or rewriting
    // the file, which stays as it is then; EBADMSG (it is not of its form, and was replaced). Then
    // epochs are shown that nobody has seen before.
    std::error_code load();
    // Before anybody can write to what was opened so far, which is not in the file yet. ERRORS: of
    // writing the file.
    std::error_code begin();
    // For as long as something is exported: it is not forgotten then.
    std::shared_ptr<const void> hold(const std::string& medium) { return entries_.hold(medium); }
    // Before opens(): it was called otherwise before. MediumRecords::take_over().
    void take_over(const std::string& medium, const std::string& former) {
        entries_.take_over(medium, former);
    }

    // An export is opened, whose storage has this epoch. Nobody is to write to it before that is
    // over.
    Ticket opens(const std::string& medium, std::uint64_t storage_epoch);
    bool is_over(Ticket ticket) const noexcept { return file_.is_over(ticket); }
    // The epoch to show for it, now. Where the file may keep saying that it was flushed, since it
    // could not be written, or was not waited for, that is one that nobody has seen before.
    std::uint64_t opened(const std::string& medium, std::uint64_t storage_epoch, Ticket ticket);
    // It was not opened after all: nobody could write to it.
    void was_not_opened(const std::string& medium);
    // Nothing was written since the last flush, and nothing will be.
    void flushed(const std::string& medium);
    // Writes were lost: whoever opens it after this shows another epoch. What goes wrong with the
    // file is logged, and tried again.
    Ticket lost(const std::string& medium);
    // At the end. ERRORS: as StateFile::save().
    std::error_code save();

  private:
    struct Entry {
        std::uint64_t storage_epoch = 0;
        std::uint64_t shown = 0;
        std::uint64_t salt = 0;  // of what is shown in this life; 0: none
        bool flushed = false;
        bool was_flushed = false;  // until it was opened, which may not be in the file yet
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
    std::uint64_t salt_ = 0;  // of all; 0: the file can be relied on
    std::error_code logged_error_;
    bool begun_ = false;
    bool changed_ = false;  // before it began
    StateFile file_;
};

}  // namespace rnbd
