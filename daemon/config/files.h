// The files of a configuration: a main file, and the files in the folder beside it.
//
// THREAD: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <utility>
#include <vector>

#include "daemon/config/error.h"
#include "daemon/config/reader.h"

namespace rnbd {

// At most this many files are read in the folder beside the main file.
constexpr std::size_t config_files_max = 1000;

// What to do about a pipe whose writer has not finished (`--config <(command)`): wait for its end,
// or refuse it. A daemon that is serving has no time to wait.
enum class PipeEnd : std::uint8_t { awaited, not_awaited };

// The content of the file.
// ERRORS: one ConfigError: absent, not readable, a directory, too long, a pipe that is not awaited.
std::expected<std::string, ConfigError> read_config_file(const std::string& path, PipeEnd pipe);

// The folder that belongs to the file: "/etc/rnbd/server.d" for "/etc/rnbd/server.yaml".
std::string config_folder_of(const std::string& path);
// The file itself, then *.yaml of its folder by name, without files that begin with a dot. The
// folder need not exist.
struct ConfigFiles {
    std::vector<ConfigSource> sources;
    std::vector<ConfigError> errors;  // one for each file that cannot be read
};
ConfigFiles read_config_files(const std::string& path, PipeEnd pipe);
// The files of the configuration without any text, not even a comment. A full disk leaves such
// files, or a program that died while writing.
std::vector<ConfigError> config_files_without_text(const std::string& path);
// The files in its folder that are not read although they look as if they should be: "20-more.yml",
// "A.YAML".
std::vector<ConfigError> config_files_passed_over(const std::string& path);

// Loads a whole configuration from these files. If some files cannot be read, errors in the others
// are reported as well, provided that the main file can be read. A setting that seems to be missing
// may be in a file that cannot be read.
template <typename Config>
std::expected<Config, std::vector<ConfigError>> load_config(const std::string& path, PipeEnd pipe) {
    ConfigFiles files = read_config_files(path, pipe);
    if (files.errors.empty()) return Config::parse(files.sources);
    const bool begins = !files.sources.empty() && files.sources.front().file == path;
    if (begins) {
        auto config = Config::parse(files.sources);
        if (!config)
            files.errors.insert(files.errors.end(), config.error().begin(), config.error().end());
    }
    return std::unexpected(std::move(files.errors));
}

}  // namespace rnbd
