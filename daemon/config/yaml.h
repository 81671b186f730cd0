// Parses YAML into a tree of values with their places, without regard to their meaning, and merges
// the trees of several files. Only yaml.cpp knows of yaml-cpp.
//
// THREAD: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace rnbd {

// A configuration with more values (including keys), or deeper nesting, is refused.
constexpr std::size_t config_values_max = 200'000;
constexpr std::size_t config_depth_max = 16;

struct ConfigNode {
    enum class Kind : std::uint8_t { null, scalar, list, map };
    Kind kind = Kind::null;
    // The index of its file.
    std::size_t file = 0;
    // From 0.
    std::size_t line = 0;
    std::size_t column = 0;
    std::string text{};
    // list: the elements; map: key, value, key, value, ...
    std::vector<ConfigNode> children{};
};

// "a mapping": how an error names what was found.
const char* describe(ConfigNode::Kind kind) noexcept;
// A user's text in the form in which an error quotes it: only its beginning if it is long.
std::string config_shortened(std::string_view text);
std::string config_quoted(std::string_view text);

struct ConfigYamlError {
    // From 1; 0 if it concerns the whole file.
    std::size_t line = 0;
    std::size_t column = 0;
    std::string text;
};

// The root of the file: a mapping, or nothing if the file is empty. file: its index, stored in
// every node. values: counted over all files, up to config_values_max.
// ERRORS: the first thing that is not YAML, or that a configuration must not have
// (daemon/config/reader.h).
std::expected<ConfigNode, ConfigYamlError> parse_config_yaml(const std::string& text,
                                                             std::size_t file, std::size_t& values);

// Merges a later file: lists are continued, mappings get more keys, any other value is replaced.
void merge_config(ConfigNode& into, ConfigNode more);

}  // namespace rnbd
