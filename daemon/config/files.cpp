#include "daemon/config/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "rtrs/base/descriptor.h"

namespace rnbd {

std::expected<std::string, ConfigError> read_config_file(const std::string& path, PipeEnd pipe) {
    const auto failed = [&](std::string text) {
        return std::unexpected(ConfigError{path, 0, 0, "", std::move(text)});
    };
    // Not blocking: the path might be a pipe that nobody writes to.
    const rtrs::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (!file) return failed(fmt::format("cannot be opened: {}", std::strerror(errno)));
    std::string text;
    std::vector<char> block(64u << 10);
    for (;;) {
        const ssize_t bytes = ::read(file.get(), block.data(), block.size());
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0 && errno == EAGAIN && pipe == PipeEnd::awaited) {
            pollfd more{.fd = file.get(), .events = POLLIN, .revents = 0};
            static_cast<void>(::poll(&more, 1, -1));
            continue;
        }
        if (bytes < 0) {
            if (errno == EAGAIN)
                return failed("found a pipe whose writer has not finished, expected a file");
            return failed(fmt::format("cannot be read: {}", std::strerror(errno)));
        }
        if (bytes == 0) break;
        text.append(block.data(), static_cast<std::size_t>(bytes));
        if (text.size() > config_bytes_max)
            return failed(fmt::format("found more than {} bytes", config_bytes_max));
    }
    return text;
}

std::string config_folder_of(const std::string& path) {
    const std::filesystem::path file(path);
    const bool yaml = file.extension() == ".yaml" || file.extension() == ".yml";
    return (yaml ? file.parent_path() / file.stem() : file).string() + ".d";
}

namespace {

// Not those that begin with a dot: editors and package managers have such. Sorted. error: set if
// the folder is there and cannot be read.
std::vector<std::string> files_of(const std::string& folder, std::error_code& error) {
    std::vector<std::string> files;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        if (!entry->path().filename().string().starts_with('.')) files.push_back(entry->path());
    }
    if (error == std::errc::no_such_file_or_directory) error.clear();
    std::ranges::sort(files);
    return files;
}

bool looks_like_yaml(const std::string& file) {
    std::string suffix = std::filesystem::path(file).extension();
    for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return suffix == ".yaml" || suffix == ".yml";
}

}  // namespace

std::vector<ConfigError> config_files_without_text(const std::string& path) {
    std::vector<ConfigError> without;
    for (const ConfigSource& one : read_config_files(path, PipeEnd::not_awaited).sources) {
        if (one.text.find_first_not_of(" \t\r\n") != std::string::npos) continue;
        without.push_back(
            {one.file, 0, 0, "",
             "found no text while something is to be taken away: is what it had lost? If it is "
             "meant to be empty, write a comment (# ...) into it"});
    }
    return without;
}

std::vector<ConfigError> config_files_passed_over(const std::string& path) {
    std::vector<ConfigError> passed_over;
    std::error_code error;
    for (const std::string& file : files_of(config_folder_of(path), error)) {
        if (!looks_like_yaml(file) || file.ends_with(".yaml")) continue;
        passed_over.push_back({file, 0, 0, "",
                               "not read: of this folder, only files whose names end in .yaml "
                               "are"});
    }
    return passed_over;
}

ConfigFiles read_config_files(const std::string& path, PipeEnd pipe) {
    ConfigFiles read;
    std::vector<ConfigError>& errors = read.errors;
    const auto add = [&read, pipe](const std::string& file) {
        auto text = read_config_file(file, pipe);
        if (text)
            read.sources.push_back({file, std::move(*text)});
        else
            read.errors.push_back(std::move(text.error()));
    };
    add(path);
    const std::string folder = config_folder_of(path);
    std::error_code error;
    std::vector<std::string> files = files_of(folder, error);
    std::erase_if(files, [](const std::string& file) { return !file.ends_with(".yaml"); });
    if (error) errors.push_back({folder, 0, 0, "", "cannot be read: " + error.message()});
    if (files.size() > config_files_max) {
        errors.push_back(
            {folder, 0, 0, "",
             fmt::format("found {} files, expected at most {}", files.size(), config_files_max)});
        files.clear();
    }
    for (const std::string& file : files) add(file);
    return read;
}

}  // namespace rnbd
