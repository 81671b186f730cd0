// The writers of all media (rnbd-server/writers.h), kept in a file, so that a server which is
// started again still knows who is out, and who is known. Media are named as medium_name() does.
//
// Who is out is in the file before the write that put it there is made, and who is known before its
// open is answered, where others may write, too: these wait for the book's ticket. So a server that
// is started after one that was killed knows each writer that may hold writes. All else, as that
// one has closed, is there within a second.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "rnbd-server/storage/medium_records.h"
#include "rnbd-server/writers.h"
#include "rtrs/base/helper_thread.h"
#include "rtrs/reactor.h"

namespace rnbd {

class WriterBook {
  public:
    using Ticket = std::uint64_t;

    // path: empty for nothing to be kept. reactor: outlives it.
    WriterBook(rtrs::Reactor& reactor, std::string path);
    ~WriterBook();
    WriterBook(const WriterBook&) = delete;
    WriterBook& operator=(const WriterBook&) = delete;

    const std::string& path() const noexcept { return path_; }
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
    void changed();
    // To be in the file at once. What is in the book now is written, or cannot be, when
    // is_written().
    Ticket write_now();
    bool is_written(Ticket ticket) const noexcept { return ticket <= done_; }
    // Called whenever something has been written, or could not be. Not from inside write_now().
    void when_written(std::function<void()> written) { written_ = std::move(written); }
    // The end: it is in the file when this returns. ERRORS: of writing it.
    std::error_code save();

  private:
    struct File;

    std::string text() const;
    void start();
    void ended(Ticket version, std::error_code error);

    rtrs::Reactor& reactor_;
    std::string path_;
    MediumRecords<Writers> media_;
    rtrs::Timer timer_;
    Ticket version_ = 0;    // of the newest text that was begun to be written
    Ticket done_ = 0;       // likewise, whose writing has ended
    bool running_ = false;  // on the helper
    bool wanted_ = false;   // something is not in the newest text
    std::error_code logged_error_;
    std::function<void()> written_;
    std::shared_ptr<File> file_;  // shared with what runs on the helper
    // Of its own: what blocks there, blocks no storage, and the other way round.
    rtrs::HelperThread helper_;
};

}  // namespace rnbd
