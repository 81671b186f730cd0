#include "rnbdctl/trusted_path.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace rnbd {
namespace {

// As for the kernel's own ELOOP.
constexpr int links_max = 40;

bool is_shared(const struct stat& status) { return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

std::string written_by_others(const std::filesystem::path& path) {
    return fmt::format("{} can be written by others than root", path.native());
}

std::string look(const std::filesystem::path& path, int links_left) {
    std::filesystem::path part;
    bool shared = false;  // the folder that was looked at last: others may put something into it
    for (const std::filesystem::path& name : path) {
        const std::filesystem::path folder = part;
        part /= name;
        struct stat status{};
        if (::lstat(part.c_str(), &status) != 0) {
            if (errno != ENOENT) return fmt::format("{}: {}", part.native(), std::strerror(errno));
            return shared ? written_by_others(folder) : "";
        }
        if (status.st_uid != 0)
            return fmt::format("{} belongs to user {}", part.native(), status.st_uid);
        if (S_ISLNK(status.st_mode)) {
            if (links_left == 0) return fmt::format("{}: {}", part.native(), std::strerror(ELOOP));
            std::error_code error;
            const auto target = std::filesystem::read_symlink(part, error);
            if (error) return fmt::format("{}: {}", part.native(), error.message());
            // The rest of the path is looked at through the link, as the kernel does.
            if (const std::string who = look(folder / target, links_left - 1); !who.empty())
                return who;
            shared = ::stat(part.c_str(), &status) == 0 && is_shared(status);
            continue;
        }
        // What is root's in a folder with the sticky bit stays root's.
        shared = is_shared(status);
        const bool sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
        if (shared && !sticky) return written_by_others(part);
    }
    return "";
}

}  // namespace

std::string changed_by_others(const std::string& path) {
    std::error_code error;
    const auto whole = std::filesystem::absolute(path, error);
    return error ? fmt::format("{}: {}", path, error.message()) : look(whole, links_max);
}

}  // namespace rnbd
