// A small text file of what the server has to know after its end. It is replaced whole: who reads
// it finds what was written last, or what was there before.
//
// It is written aside, by a thread of its own, since its disk may be slow or hang: the loop goes
// on, and who has to know that something is in the file waits for a ticket. Without a thread, the
// loop writes.
//
// OWNER: a book. THREAD: the reactor's (rtrs/reactor.h).
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

    // path: empty for nothing to be kept; then all is written at once, and nothing is to be read.
    // text: what is to be in the file, asked for whenever it is written; one at a time.
    // ended: a writing of it has ended so; not called from inside the functions below.
    // reactor: outlives it.
    StateFile(rtrs::Reactor& reactor, std::string path, std::function<std::string()> text,
              std::function<void(std::error_code error)> ended);
    // What is being written is waited for, unless save() found that it hangs.
    ~StateFile();
    StateFile(const StateFile&) = delete;
    StateFile& operator=(const StateFile&) = delete;

    const std::string& path() const noexcept { return path_; }
    // All of it. Blocks. ERRORS: ENOENT, and others of opening and reading it.
    std::expected<std::string, std::error_code> read() const;
    // Durable when it returns without an error. Blocks: before the loop runs. ERRORS: of writing
    // it; then what was there is still there.
    std::error_code write();
    // To be in the file soon.
    void changed();
    // To be in the file at once. ended() follows.
    Ticket write_now();
    // It is in the file, or could not be written. What could not be is tried again soon.
    bool is_over(Ticket ticket) const noexcept { return ticket <= over_; }
    bool is_written(Ticket ticket) const noexcept { return ticket <= written_; }
    // Of the newest writing that has ended.
    std::error_code error() const noexcept { return error_; }
    // The end: as write(), but it waits two seconds at most. ERRORS: likewise, ETIMEDOUT.
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
    Ticket version_ = 0;    // of the newest text that was begun to be written
    Ticket over_ = 0;       // likewise, whose writing has ended
    Ticket written_ = 0;    // likewise, without an error
    bool running_ = false;  // on the helper
    bool wanted_ = false;   // something is not in the newest text
    std::error_code error_;
    std::shared_ptr<File> file_;  // shared with what runs on the helper
    // Of its own: what blocks there, blocks no storage, and the other way round.
    rtrs::HelperThread helper_;
};

// "server.epochs" in the folder that systemd gives the server (StateDirectory=); empty if it gives
// none.
std::string state_file_path(std::string_view name);

}  // namespace rnbd
