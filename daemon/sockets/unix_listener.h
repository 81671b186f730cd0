// A Unix stream socket to listen on, and its file.
#pragma once

#include <sys/types.h>

#include <expected>
#include <string>
#include <system_error>

#include "rtrs/base/descriptor.h"

namespace rnbd {

// Removes a socket that nobody listens on any more, and listens; it blocks, as the ring wants it.
// backlog: as of listen(2). The file never exists with other rights than mode.
// ERRORS: EADDRINUSE (somebody listens there, or is about to), EEXIST (the file is no socket),
// ENAMETOOLONG, those of bind(2) and of making a file beside it.
std::expected<rtrs::Descriptor, std::error_code> listen_on_unix(const std::string& path,
                                                                mode_t mode, int backlog = 64);
// The same for a socket of the daemon itself: its folder is made if only that is missing (0755).
std::expected<rtrs::Descriptor, std::error_code> listen_on_unix_in_folder(const std::string& path,
                                                                          mode_t mode);

// The file that listen_on_unix() made, to be removed when the listener ends: not if another daemon
// has put its own in place.
class UnixSocketFile {
  public:
    UnixSocketFile() = default;
    explicit UnixSocketFile(std::string path);
    void remove() const;
    // False: others have removed it, or put something else in its place.
    bool is_there() const;

  private:
    std::string path_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

}  // namespace rnbd
