#include "rnbd-client/kernel_nbd/identifier_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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

std::expected<rtrs::Descriptor, std::string> open_folder(const std::string& path) {
    // What cannot be made cannot be opened either, unless it is there already.
    static_cast<void>(::mkdir(path.substr(0, path.rfind('/')).c_str(), 0755));
    static_cast<void>(::mkdir(path.c_str(), 0700));
    rtrs::Descriptor folder(::open(path.c_str(), O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder) return failure(path, errno);
    struct stat about{};
    if (::fstat(folder.get(), &about) == 0 && (about.st_uid == 0 || about.st_uid == ::geteuid()) &&
        (about.st_mode & (S_IWGRP | S_IWOTH)) == 0) {
        return folder;
    }
    return std::unexpected(path + " belongs to others, or others may write there");
}

}  // namespace

std::expected<IdentifierLock, std::string> IdentifierLock::take(const std::string& identifier,
                                                                const std::string& folder) {
    const auto opened = open_folder(folder);
    if (!opened) return std::unexpected(opened.error());
    rtrs::Descriptor file(::openat(opened->get(), file_name(identifier).c_str(),
                                   O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return failure(folder, errno);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) return IdentifierLock(std::move(file));
    if (errno != EWOULDBLOCK) return failure(folder, errno);
    return std::unexpected(
        fmt::format("another rnbd-client on this machine serves /dev/{}", identifier));
}

}  // namespace rnbd
