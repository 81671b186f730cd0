// From the look whether anybody listens on a Unix socket's path until one's own socket listens
// there, one process at a time: two that began together could each take the other's socket, which
// is bound and not listening yet, for that of a dead process, and remove it.
//
//   const auto lock = SocketFileLock::take(path);
//   // remove a stale socket, bind, listen; then let go of the lock
//
// It is a file beside the socket, "PATH.lock", and gone again afterwards; one that a killed process
// left is no hindrance.
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
