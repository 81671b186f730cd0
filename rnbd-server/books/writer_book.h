// The writers of all media (rnbd-server/books/writers.h), kept in a file, so that a server which is
// started again still knows who is out, and who is known. Media are named as medium_name() does.
//
// Who is out is in the file before the write that put it there is made, and who is known before its
// open is answered, where others may write, too: these wait for the book's ticket. So a server that
// is started after one that was killed knows each writer that may hold writes. All else, as that
// one has closed, is there within a second.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "rnbd-server/books/medium_records.h"
#include "rnbd-server/books/state_file.h"
#include "rnbd-server/books/writers.h"
#include "rtrs/reactor.h"

namespace rnbd {

class WriterBook {
  public:
    using Ticket = StateFile::Ticket;

    // path: empty for nothing to be kept. reactor: outlives it.
    WriterBook(rtrs::Reactor& reactor, std::string path);
    WriterBook(const WriterBook&) = delete;
    WriterBook& operator=(const WriterBook&) = delete;

    const std::string& path() const noexcept { return file_.path(); }
    // Before anything else. A file that is absent is an empty one. ERRORS: of reading the file,
    // EBADMSG (it is not of this form; lines that are were taken); it is replaced all the same.
    std::error_code load();
    // For as long as it is exported, or one who had it open may say that it closes. What is known
    // of its writers stays beyond that.
    std::shared_ptr<Writers> of(const std::string& medium) { return media_.hold(medium); }
    // It was called otherwise before: MediumRecords::take_over().
    void take_over(const std::string& medium, const std::string& former) {
        if (media_.take_over(medium, former)) changed();
    }
    // To be in the file soon; what goes wrong is logged, and tried again.
    void changed() { file_.changed(); }
    // To be in the file at once. What is in the book now is written, or cannot be, when
    // is_written().
    Ticket write_now() { return file_.write_now(); }
    bool is_written(Ticket ticket) const noexcept { return file_.is_over(ticket); }
    // Called whenever something has been written, or could not be. Not from inside write_now().
    void when_written(std::function<void()> written) { written_ = std::move(written); }
    // The end: it is in the file when this returns. ERRORS: as StateFile::save().
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
