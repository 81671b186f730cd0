// The writers of all media (rnbd-server/state/writers.h), kept in a file, so that a restarted
// server still knows which writers are out, and which are known. Media are named by medium_name().
//
// When a write puts a writer out, that is in the file before the write is made. If others may write
// too, a writer that becomes known is in the file before its open is answered. Both wait for the
// ticket of write_now(). So a server that is started after another one was killed knows each writer
// that may hold writes. All other changes, such as a close, are in the file within a second.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "rnbd-server/state/medium_records.h"
#include "rnbd-server/state/state_file.h"
#include "rnbd-server/state/writers.h"
#include "rtrs/reactor.h"

namespace rnbd {

class WriterFile {
  public:
    using Ticket = StateFile::Ticket;

    // path: empty to keep nothing. reactor: outlives this.
    WriterFile(rtrs::Reactor& reactor, std::string path);
    WriterFile(const WriterFile&) = delete;
    WriterFile& operator=(const WriterFile&) = delete;

    const std::string& path() const noexcept { return file_.path(); }
    // Called before anything else. An absent file counts as an empty one. After an error, later
    // writes replace the file nevertheless.
    // ERRORS: those of reading the file, EBADMSG (the file does not have the right form; the lines
    // that have it were taken).
    std::error_code load();
    // Held for as long as the medium is exported, or a session that had it open may still say that
    // it closes. What is known of its writers is kept beyond that.
    std::shared_ptr<Writers> of(const std::string& medium) { return media_.hold(medium); }
    // The medium had another name before: MediumRecords::take_over().
    void take_over(const std::string& medium, const std::string& former) {
        if (media_.take_over(medium, former)) changed();
    }
    // The content has changed; it is written soon. Errors are logged, and it is tried again.
    void changed() { file_.changed(); }
    // The file is written at once. When is_written() is true for the ticket, the present content is
    // in the file, or could not be written.
    Ticket write_now() { return file_.write_now(); }
    bool is_written(Ticket ticket) const noexcept { return file_.is_over(ticket); }
    // written: called whenever the file was written, or could not be. Not from inside write_now().
    void when_written(std::function<void()> written) { written_ = std::move(written); }
    // For the end: when this returns without an error, the content is in the file.
    // ERRORS: as StateFile::save().
    std::error_code save() { return file_.save(); }

  private:
    std::string text() const;
    void ended(std::error_code error);

    MediumRecords<Writers> media_;
    std::error_code logged_error_;
    std::function<void()> written_;
    StateFile file_;
};

}  // namespace rnbd
