// A Unix stream socket to listen on, and its file.
//
// OWNER: the caller owns the descriptor and the UnixSocketFile, which do not know each other.
// THREAD: any; one UnixSocketFile is used by one thread at a time.
// ERRORS: as each function says.
#pragma once

#include <sys/types.h>

#include <expected>
#include <string>
#include <system_error>

#include "rtrs/base/descriptor.h"

namespace rnbd {

// Listens at path, after removing a socket file that nobody listens on any more. The returned
// socket is a blocking one, as io_uring wants it. backlog: as in listen(2). The socket file never
// has more permissions than mode.
// ERRORS: EADDRINUSE (somebody listens there, or is about to), EEXIST (the file is not a socket),
// EINVAL (path is empty), ENAMETOOLONG, errors of bind(2), and of making a file beside the socket.
std::expected<rtrs::Descriptor, std::error_code> listen_on_unix(const std::string& path,
                                                                mode_t mode, int backlog = 64);
// The same for the daemon's own socket: if only the last folder of the path is missing, it is made
// (mode 0755).
// ERRORS: also those of mkdir(2), if the folder is missing and cannot be made.
std::expected<rtrs::Descriptor, std::error_code> listen_on_unix_in_folder(const std::string& path,
                                                                          mode_t mode);

// Where listen_on_unix() was not permitted to go on: the file that is in the way because it is
// another user's, the socket or the one beside it, in words. Empty: neither is.
std::string whose_socket_file(const std::string& path);

// The file that listen_on_unix() made, to be removed when the listener ends. It is not removed if
// another daemon has put its own file in its place.
class UnixSocketFile {
  public:
    // No file.
    UnixSocketFile() = default;
    // path: where listen_on_unix() has just made the file.
    explicit UnixSocketFile(std::string path);
    // Removes the file if is_there(). Errors are ignored.
    void remove() const;
    // False: the file was removed, or something else is in its place.
    bool is_there() const;

  private:
    std::string path_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

}  // namespace rnbd
