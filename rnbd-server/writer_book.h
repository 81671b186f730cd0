// The writers of all exports (rnbd-server/writers.h), kept in a file, so that a server which is
// started again still knows who is out, and who is known.
//
// Who is out is in the file before the write that put it there is made: saving() says for how long
// that is to wait. Who is known is there within a second of its opening: of a server that was
// killed in that second, the next one lets such a writer come back although another one has
// written.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "rnbd-server/writers.h"
#include "rtrs/reactor.h"

namespace rnbd {

class WriterBook {
  public:
    // path: empty for nothing to be kept. reactor: outlives it.
    WriterBook(rtrs::Reactor& reactor, std::string path);
    ~WriterBook();
    WriterBook(const WriterBook&) = delete;
    WriterBook& operator=(const WriterBook&) = delete;

    const std::string& path() const noexcept { return path_; }
    // Before anything else. A file that is absent or not of this form is an empty one. ERRORS: of
    // reading the file.
    std::error_code load();
    // Of the export of this name; stays in place.
    Writers& of(const std::string& name) { return exports_[name]; }
    // To be in the file soon; what goes wrong is logged.
    void changed();
    // To be in the file at once: saving() until it is, or cannot be, which is logged.
    void save_now();
    bool saving() const noexcept { return wanted_ == Wanted::now || running_ == Wanted::now; }
    // Called when saving() is over. Not from inside save_now().
    void when_saved(std::function<void()> saved) { saved_ = std::move(saved); }
    // The end: it is in the file when this returns. ERRORS: of writing it.
    std::error_code save();

  private:
    struct File;
    enum class Wanted : std::uint8_t { no, soon, now };

    std::string text() const;
    void start();
    void ended(std::error_code error);

    rtrs::Reactor& reactor_;
    std::string path_;
    std::map<std::string, Writers> exports_;
    rtrs::Timer timer_;
    Wanted wanted_ = Wanted::no;   // what is not in what is being written
    Wanted running_ = Wanted::no;  // what is being written on the helper thread
    std::function<void()> saved_;
    std::shared_ptr<File> file_;  // shared with what is written on the helper thread
};

}  // namespace rnbd
