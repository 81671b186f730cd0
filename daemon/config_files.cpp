// The files of a configuration (declared in config_reader.h).
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "daemon/config_reader.h"

namespace rnbd {

std::expected<std::string, ConfigError> read_config_file(const std::string& path) {
    const auto failed = [&](std::string text) {
        return std::unexpected(ConfigError{path, 0, 0, "", std::move(text)});
    };
    // Not blocking: the path might be a pipe that nobody writes to.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return failed(fmt::format("cannot be opened: {}", std::strerror(errno)));
    std::string text;
    std::vector<char> block(64u << 10);
    for (;;) {
        const ssize_t bytes = ::read(fd, block.data(), block.size());
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) {
            const int error = errno;
            ::close(fd);
            return failed(fmt::format("cannot be read: {}", std::strerror(error)));
        }
        if (bytes == 0) break;
        text.append(block.data(), static_cast<std::size_t>(bytes));
        if (text.size() > config_bytes_max) {
            ::close(fd);
            return failed(fmt::format("found more than {} bytes", config_bytes_max));
        }
    }
    ::close(fd);
    return text;
}

std::string config_folder_of(const std::string& path) {
    const std::filesystem::path file(path);
    const bool yaml = file.extension() == ".yaml" || file.extension() == ".yml";
    return (yaml ? file.parent_path() / file.stem() : file).string() + ".d";
}

std::expected<std::vector<ConfigSource>, std::vector<ConfigError>> read_config_files(
    const std::string& path) {
    std::vector<ConfigSource> sources;
    std::vector<ConfigError> errors;
    const auto add = [&](const std::string& file) {
        auto text = read_config_file(file);
        if (text)
            sources.push_back({file, std::move(*text)});
        else
            errors.push_back(std::move(text.error()));
    };
    add(path);
    const std::string folder = config_folder_of(path);
    std::vector<std::string> files;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (name.ends_with(".yaml") && !name.starts_with('.')) files.push_back(entry->path());
    }
    if (error && error != std::errc::no_such_file_or_directory)
        errors.push_back({folder, 0, 0, "", "cannot be read: " + error.message()});
    if (files.size() > config_files_max) {
        errors.push_back(
            {folder, 0, 0, "",
             fmt::format("found {} files, expected at most {}", files.size(), config_files_max)});
        files.clear();
    }
    std::ranges::sort(files);
    for (const std::string& file : files) add(file);
    if (!errors.empty()) return std::unexpected(std::move(errors));
    return sources;
}

}  // namespace rnbd
