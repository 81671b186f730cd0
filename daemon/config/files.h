// The files of a configuration: one, and those of the folder beside it.
//
// THREAD: any one.
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

// Files in the folder beside the first one.
constexpr std::size_t config_files_max = 1000;

// What to do about a pipe whose writer has not finished (`--config <(command)`): wait for its end,
// or refuse it. A daemon that serves has no time to wait.
enum class PipeEnd : std::uint8_t { awaited, not_awaited };

// The file's bytes. ERRORS: one ConfigError: absent, not readable, a directory, too long, a pipe
// that is not awaited.
std::expected<std::string, ConfigError> read_config_file(const std::string& path, PipeEnd pipe);

// The folder whose files go with it: "/etc/rnbd/server.d" of "/etc/rnbd/server.yaml".
std::string config_folder_of(const std::string& path);
// The file itself, then *.yaml of its folder by name, those that begin with a dot left out; the
// folder need not exist.
struct ConfigFiles {
    std::vector<ConfigSource> sources;
    std::vector<ConfigError> errors;  // each file that cannot be read
};
ConfigFiles read_config_files(const std::string& path, PipeEnd pipe);
// Files of it without any text, not even a comment, as a full disk leaves them, or a program that
// died while it wrote.
std::vector<ConfigError> config_files_without_text(const std::string& path);
// Files of its folder that are not read and look as if they should be: "20-more.yml", "A.YAML".
std::vector<ConfigError> config_files_passed_over(const std::string& path);

// A whole configuration of these files. Of what can be read the errors are told as well, if the
// first file is among it: what is in none of them may be in one that cannot be read.
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
