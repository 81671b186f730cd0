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
// The file says "in use" of an export before anybody can write to it. Of one that this server never
// opens, since its disk is not there or another thing keeps it from starting, it says what it said.
// Media are named as medium_name() does, not by their exports.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

#include "rnbd-server/storage/medium_records.h"

namespace rnbd {

class EpochBook {
  public:
    // path: empty for nothing to be kept.
    explicit EpochBook(std::string path) : path_(std::move(path)) {}

    const std::string& path() const noexcept { return path_; }
    // Before anything else. A file that is absent is an empty one. ERRORS: of reading or rewriting
    // the file, which stays as it is then; EBADMSG (it is not of its form, and was replaced). Then
    // epochs are shown that nobody has seen before.
    std::error_code load();
    // Before anybody can write to what was opened so far, which is not in the file yet. ERRORS: of
    // writing the file.
    std::error_code begin();
    // For as long as something is exported: it is not forgotten then.
    std::shared_ptr<const void> hold(const std::string& medium) { return entries_.hold(medium); }
    // Before opened(): it was called otherwise before. MediumRecords::take_over().
    void take_over(const std::string& medium, const std::string& former) {
        entries_.take_over(medium, former);
    }
    // The epoch to show for an export whose storage has this one. Where the file keeps saying that
    // it was flushed, since it cannot be written now, that is one that nobody has seen before.
    std::uint64_t opened(const std::string& medium, std::uint64_t storage_epoch);
    // Why the file does not say what the last opened() has done; empty: it does, or need not.
    std::error_code not_noted() const noexcept { return not_noted_; }
    // Nothing was written since the last flush, and nothing will be.
    void flushed(const std::string& medium);
    // Writes were lost: whoever opens it after this shows another epoch. ERRORS: of writing the
    // file.
    std::error_code lost(const std::string& medium);
    // At the end. ERRORS: of writing the file, ETIMEDOUT (its disk hangs).
    std::error_code save() const;

  private:
    struct Entry {
        std::uint64_t storage_epoch = 0;
        std::uint64_t shown = 0;
        std::uint64_t salt = 0;  // of what is shown in this life; 0: none
        bool flushed = false;
        bool lost = false;

        bool empty() const noexcept { return storage_epoch == 0; }
    };
    bool parse(const std::string& text);
    bool is_kept() const noexcept;
    std::string text() const;
    std::error_code write() const;
    std::error_code distrust(std::error_code error);

    std::string path_;
    MediumRecords<Entry> entries_;
    std::uint64_t salt_ = 0;  // of all; 0: the file can be relied on
    std::error_code not_noted_;
    bool begun_ = false;
    bool changed_ = false;  // before it began
};

}  // namespace rnbd
