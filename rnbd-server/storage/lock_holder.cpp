#include "rnbd-server/storage/lock_holder.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

namespace rnbd {
namespace {

// "08:01:12345", as /proc/locks names a file.
std::string name_among_locks(const struct stat& file) {
    return fmt::format("{:02x}:{:02x}:{}", major(file.st_dev), minor(file.st_dev), file.st_ino);
}

std::string words_of(pid_t pid) {
    if (pid == ::getpid()) return "another export of this server, through a link";
    // Also of another user's.
    const bool is_there = ::kill(pid, 0) == 0 || errno == EPERM;
    if (!is_there) return "";
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::string name;
    std::getline(file, name);
    return name.empty() ? fmt::format("pid {}", pid) : fmt::format("{} (pid {})", name, pid);
}

}  // namespace

// 1: FLOCK  ADVISORY  WRITE 4711 08:01:12345 0 EOF; of who waits there is "->" before FLOCK.
std::string lock_holder(int fd) {
    struct stat file{};
    if (::fstat(fd, &file) != 0) return "";
    const std::string wanted = name_among_locks(file);
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
        std::istringstream words(line);
        std::string number, kind, advisory, mode, name;
        pid_t pid = 0;
        if (!(words >> number >> kind >> advisory >> mode >> pid >> name)) continue;
        if (kind == "FLOCK" && name == wanted && pid > 0) return words_of(pid);
    }
    return "";
}

}  // namespace rnbd
