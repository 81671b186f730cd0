// A lock that one process at a time holds while it checks whether anybody listens at the path of a
// Unix socket, and until its own socket listens there. Otherwise two processes that begin together
// could each mistake the other's socket, which is bound and not listening yet, for that of a dead
// process, and remove it.
//
//   const auto lock = SocketFileLock::take(path);
//   // remove a stale socket, bind, listen; then let go of the lock
//
// It is a file beside the socket, "PATH.lock", which is removed afterwards. A file that a killed
// process has left does no harm.
//
// OWNER: whoever listens. THREAD: any.
#pragma once

#include <expected>
#include <string>
#include <system_error>
#include <utility>

#include "rtrs/base/descriptor.h"

namespace rnbd {

class SocketFileLock {
  public:
    // Does not wait. ERRORS: EADDRINUSE (another process is about to listen there, or to find out
    // that it cannot), those of open(2).
    static std::expected<SocketFileLock, std::error_code> take(const std::string& socket_path);
    // The file beside the socket.
    static std::string path_of(const std::string& socket_path);
    SocketFileLock(SocketFileLock&&) = default;
    SocketFileLock& operator=(SocketFileLock&&) = delete;
    ~SocketFileLock();

  private:
    SocketFileLock(std::string path, rtrs::Descriptor file)
        : path_(std::move(path)), file_(std::move(file)) {}

    std::string path_;
    rtrs::Descriptor file_;
};

}  // namespace rnbd
