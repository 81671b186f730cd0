// A small text file with what the server has to know after a restart. It is always replaced as a
// whole: a reader finds either what was written last, or what was there before.
//
// A thread of its own writes the file, because the disk may be slow or hang. The loop goes on
// meanwhile; whoever has to know that something is in the file waits for a ticket. If there is no
// thread to be had, the loop writes.
//
// OWNER: EpochFile, WriterFile. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "rtrs/base/helper_thread.h"
#include "rtrs/reactor.h"

namespace rnbd {

class StateFile {
  public:
    using Ticket = std::uint64_t;

    // path: empty to keep nothing; then everything counts as written at once, and read() finds no
    // file.
    // text: returns what is to be in the file; called for each writing.
    // ended: called with the result of each writing by the thread; not from inside the functions
    // below.
    // reactor: outlives this.
    StateFile(rtrs::Reactor& reactor, std::string path, std::function<std::string()> text,
              std::function<void(std::error_code error)> ended);
    // Waits for a writing that is under way, unless save() found that it hangs.
    ~StateFile();
    StateFile(const StateFile&) = delete;
    StateFile& operator=(const StateFile&) = delete;

    const std::string& path() const noexcept { return path_; }
    // Reads the whole file. Blocks.
    // ERRORS: ENOENT, and others of opening and reading the file.
    std::expected<std::string, std::error_code> read() const;
    // When it returns without an error, the text is durable. Blocks, so it is for the time before
    // the loop runs.
    // ERRORS: those of writing; then the file still has its former content.
    std::error_code write();
    // The text has changed; it is written soon.
    void changed();
    // The text is written at once. ended() follows.
    Ticket write_now();
    // The writing has ended: the text is in the file, or could not be written. In the latter case
    // it is tried again soon.
    bool is_over(Ticket ticket) const noexcept { return ticket <= over_; }
    bool is_written(Ticket ticket) const noexcept { return ticket <= written_; }
    // As write(), but it waits no longer than this, while the loop stands still, if there is a
    // thread to be had. What takes longer goes on.
    // ERRORS: as write(), and ETIMEDOUT.
    std::error_code write_within(rtrs::Duration timeout);
    // For the end: as write(), but it waits two seconds at most.
    // ERRORS: as write(), and ETIMEDOUT.
    std::error_code save();

  private:
    struct File;

    Ticket start();
    void has_ended(Ticket version, std::error_code error);
    std::error_code note(Ticket version, std::error_code error);

    rtrs::Reactor& reactor_;
    std::string path_;
    std::function<std::string()> text_;
    std::function<void(std::error_code error)> ended_;
    rtrs::Timer timer_;
    Ticket version_ = 0;          // the newest text whose writing has begun
    Ticket over_ = 0;             // the newest text whose writing has ended
    Ticket written_ = 0;          // the newest text whose writing has ended without an error
    bool running_ = false;        // a writing is under way on the helper
    bool wanted_ = false;         // there are changes that the newest text does not have
    std::shared_ptr<File> file_;  // shared with the work on the helper
    // The file has a helper of its own, so that it cannot block a storage, nor a storage the file.
    rtrs::HelperThread helper_;
};

// The path of a file with this name, such as "server.epochs", in the folder that systemd gives the
// server (StateDirectory=); empty if it gives none.
std::string state_file_path(std::string_view name);

}  // namespace rnbd
