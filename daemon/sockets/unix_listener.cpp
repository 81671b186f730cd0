#include "daemon/sockets/unix_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/sockets/socket_file_lock.h"
#include "rtrs/base/error.h"

namespace rnbd {

namespace {

std::error_code last_error() noexcept { return rtrs::from_errno(errno); }

std::expected<sockaddr_un, std::error_code> socket_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty()) return std::unexpected(rtrs::from_errno(EINVAL));
    if (path.size() >= sizeof address.sun_path)
        return std::unexpected(rtrs::from_errno(ENAMETOOLONG));
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

const sockaddr* generic(const sockaddr_un& address) noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
}

// Makes room for a new socket: removes one that nobody listens on.
std::error_code remove_stale_socket(const sockaddr_un& address) {
    struct stat found{};
    if (::lstat(address.sun_path, &found) != 0)
        return errno == ENOENT ? std::error_code{} : last_error();
    if (!S_ISSOCK(found.st_mode)) return rtrs::from_errno(EEXIST);
    const rtrs::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe) return last_error();
    const int result = ::connect(probe.get(), generic(address), sizeof address);
    const int error = errno;
    // EAGAIN: somebody listens, with a full queue.
    if (result == 0 || error == EAGAIN) return rtrs::from_errno(EADDRINUSE);
    if (error != ECONNREFUSED) return rtrs::from_errno(error);
    return ::unlink(address.sun_path) == 0 || errno == ENOENT ? std::error_code{} : last_error();
}

std::error_code make_directory_of(const std::string& path) {
    const auto slash = path.rfind('/');
    if (slash == std::string::npos || slash == 0) return {};
    const bool there = ::mkdir(path.substr(0, slash).c_str(), 0755) == 0 || errno == EEXIST;
    return there ? std::error_code{} : last_error();
}

}  // namespace

std::expected<rtrs::Descriptor, std::error_code> listen_on_unix(const std::string& path,
                                                                mode_t mode, int backlog) {
    const auto address = socket_address(path);
    if (!address) return std::unexpected(address.error());
    const auto lock = SocketFileLock::take(path);
    if (!lock) return std::unexpected(lock.error());
    if (const auto error = remove_stale_socket(*address)) return std::unexpected(error);
    rtrs::Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!listener) return std::unexpected(last_error());
    // Before bind, where the umask may only take away; afterwards what it took.
    std::error_code error;
    if (::fchmod(listener.get(), mode) != 0 ||
        ::bind(listener.get(), generic(*address), sizeof *address) != 0) {
        error = last_error();
    } else if (::chmod(address->sun_path, mode) != 0 || ::listen(listener.get(), backlog) != 0) {
        error = last_error();
        ::unlink(address->sun_path);
    } else {
        return listener;
    }
    return std::unexpected(error);
}

std::expected<rtrs::Descriptor, std::error_code> listen_on_unix_in_folder(const std::string& path,
                                                                          mode_t mode) {
    const std::error_code not_made = make_directory_of(path);
    auto listener = listen_on_unix(path, mode);
    // Why the folder could not be made says more than that it is missing.
    if (!listener && listener.error() == rtrs::from_errno(ENOENT) && not_made)
        return std::unexpected(not_made);
    return listener;
}

std::string whose_socket_file(const std::string& path) {
    for (const std::string& file : {path, SocketFileLock::path_of(path)}) {
        struct stat found{};
        if (::lstat(file.c_str(), &found) == 0 && found.st_uid != ::geteuid())
            return file + " belongs to another user (uid " + std::to_string(found.st_uid) + ")";
    }
    return {};
}

UnixSocketFile::UnixSocketFile(std::string path) : path_(std::move(path)) {
    struct stat made{};
    if (::stat(path_.c_str(), &made) == 0) {
        device_ = made.st_dev;
        inode_ = made.st_ino;
    }
}

void UnixSocketFile::remove() const {
    if (is_there()) ::unlink(path_.c_str());
}

bool UnixSocketFile::is_there() const {
    struct stat found{};
    return !path_.empty() && ::stat(path_.c_str(), &found) == 0 && found.st_dev == device_ &&
           found.st_ino == inode_;
}

}  // namespace rnbd
