#include "rnbd-client/kernel_nbd/identifier_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "rtrs/base/error.h"
#include "rtrs/base/fnv1a.h"

namespace rnbd {
namespace {

// Identifiers are longer than a file's name may be. Two that have the same one keep each other out,
// which is safe.
std::string file_name(const std::string& identifier) {
    return fmt::format("{:016x}.lock", rtrs::fnv1a(identifier));
}

std::unexpected<std::string> failure(const std::string& path, int error) {
    return std::unexpected(
        fmt::format("{}, which tells the kernel devices of this machine apart: {}", path,
                    rtrs::from_errno(error).message()));
}

// Returns a file descriptor.
std::expected<int, std::string> open_folder(const std::string& path) {
    // What cannot be made cannot be opened either, unless it is there already.
    static_cast<void>(::mkdir(path.substr(0, path.rfind('/')).c_str(), 0755));
    static_cast<void>(::mkdir(path.c_str(), 0700));
    const int folder = ::open(path.c_str(), O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return failure(path, errno);
    struct stat about{};
    if (::fstat(folder, &about) == 0 && (about.st_uid == 0 || about.st_uid == ::geteuid()) &&
        (about.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
        return folder;
    }
    ::close(folder);
    return std::unexpected(path + " belongs to others, or others may write there");
}

}  // namespace

std::expected<IdentifierLock, std::string> IdentifierLock::take(const std::string& identifier,
                                                                const std::string& folder) {
    const auto opened = open_folder(folder);
    if (!opened) return std::unexpected(opened.error());
    const int file = ::openat(*opened, file_name(identifier).c_str(),
                              O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    const int error = errno;
    ::close(*opened);
    if (file < 0) return failure(folder, error);
    IdentifierLock lock(file);
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) return failure(folder, errno);
    return std::unexpected(
        fmt::format("another rnbd-client on this machine serves /dev/{}", identifier));
}

IdentifierLock::~IdentifierLock() {
    if (file_ >= 0) ::close(file_);
}

IdentifierLock::IdentifierLock(IdentifierLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)) {}

IdentifierLock& IdentifierLock::operator=(IdentifierLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
}

}  // namespace rnbd
