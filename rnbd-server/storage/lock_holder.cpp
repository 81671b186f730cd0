#include "rnbd-server/storage/lock_holder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "rtrs/base/process_words.h"

namespace rnbd {
namespace {

// "08:01:12345", as /proc/locks names a file.
std::string name_among_locks(const struct stat& file) {
    return fmt::format("{:02x}:{:02x}:{}", major(file.st_dev), minor(file.st_dev), file.st_ino);
}

// 1: FLOCK  ADVISORY  WRITE 4711 08:01:12345 0 EOF; of who waits there is "->" before FLOCK.
std::optional<pid_t> owner_of_lock(const std::string& line, const std::string& file) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, name;
    pid_t pid = 0;
    if (!(words >> number >> kind >> advisory >> mode >> pid >> name)) return std::nullopt;
    return kind == "FLOCK" && name == file ? std::optional(pid) : std::nullopt;
}

enum class Has : std::uint8_t { yes, no, unknown };

// How many open files are looked at for one name: a process may have a million, and who waits for a
// lock asks each second.
constexpr int files_max = 4096;

// Who took a lock may have handed the file on and ended, and its number be another one's. What a
// process has open is told with its locks, in lines of /proc/PID/fdinfo/FD: "lock:" and the same.
// files_left: to be looked at; beyond them it is not known.
Has has_locked(pid_t pid, const std::string& file, int& files_left) {
    constexpr std::string_view prefix = "lock:";
    std::error_code error;
    std::filesystem::directory_iterator open(fmt::format("/proc/{}/fdinfo", pid), error);
    if (error) return error == std::errc::permission_denied ? Has::unknown : Has::no;
    for (; open != std::filesystem::directory_iterator(); open.increment(error)) {
        if (files_left-- <= 0) return Has::unknown;
        std::ifstream about(open->path());
        for (std::string line; std::getline(about, line);) {
            if (line.starts_with(prefix) && owner_of_lock(line.substr(prefix.size()), file))
                return Has::yes;
        }
        if (error) break;
    }
    return Has::no;
}

std::string words_of(pid_t pid, Has has) {
    if (has == Has::no) return "";
    const std::string who = pid == ::getpid() ? "another export of this server, through a link"
                                              : rtrs::process_words(pid);
    return has == Has::unknown ? "another program, maybe " + who : who;
}

}  // namespace

std::string lock_holder(int fd) {
    struct stat file{};
    if (::fstat(fd, &file) != 0) return "";
    const std::string wanted = name_among_locks(file);
    int files_left = files_max;
    std::ifstream locks("/proc/locks");
    for (std::string line; std::getline(locks, line);) {
        const auto pid = owner_of_lock(line, wanted);
        if (!pid || *pid <= 0) continue;
        const std::string words = words_of(*pid, has_locked(*pid, wanted, files_left));
        if (!words.empty()) return words;
    }
    return "";
}

}  // namespace rnbd
