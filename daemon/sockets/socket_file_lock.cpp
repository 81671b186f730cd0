#include "daemon/sockets/socket_file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "rtrs/base/error.h"

namespace rnbd {
namespace {

// How often in a row others may have had it, and let go of it, in the middle of taking it.
constexpr int attempts_max = 100;

bool is_at(const std::string& path, int fd) noexcept {
    struct stat file{}, there{};
    return ::fstat(fd, &file) == 0 && ::stat(path.c_str(), &there) == 0 &&
           file.st_dev == there.st_dev && file.st_ino == there.st_ino;
}

}  // namespace

std::string SocketFileLock::path_of(const std::string& socket_path) {
    return socket_path + ".lock";
}

std::expected<SocketFileLock, std::error_code> SocketFileLock::take(
    const std::string& socket_path) {
    const std::string path = path_of(socket_path);
    for (int attempt = 0; attempt < attempts_max; ++attempt) {
        rtrs::Descriptor file(::open(path.c_str(),
                                     O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                                     static_cast<mode_t>(0600)));
        if (!file) return std::unexpected(rtrs::from_errno(errno));
        if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
            const int error = errno;
            return std::unexpected(rtrs::from_errno(error == EWOULDBLOCK ? EADDRINUSE : error));
        }
        // Whoever had it may have removed the file after it was opened here.
        if (is_at(path, file.get())) return SocketFileLock(path, std::move(file));
    }
    return std::unexpected(rtrs::from_errno(EADDRINUSE));
}

SocketFileLock::~SocketFileLock() {
    if (file_) ::unlink(path_.c_str());
}

}  // namespace rnbd
