// YAML to a tree of values with their places, before anybody asks what they mean; and how the trees
// of several files become one. The only file that knows of yaml-cpp is its .cpp.
//
// THREAD: any one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

namespace rnbd {

// Values (keys count too) and nesting beyond which it is refused.
constexpr std::size_t config_values_max = 200'000;
constexpr std::size_t config_depth_max = 16;

struct ConfigNode {
    enum class Kind : std::uint8_t { null, scalar, list, map };
    Kind kind = Kind::null;
    // Index of the file it stands in.
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
// What a user wrote, as an error quotes it: no more than its beginning.
std::string config_shortened(std::string_view text);
std::string config_quoted(std::string_view text);

struct ConfigYamlError {
    // From 1; 0 if it concerns the whole file.
    std::size_t line = 0;
    std::size_t column = 0;
    std::string text;
};

// The file's root: a mapping, or nothing if the file says nothing. file: its index, noted in every
// node. values: counted over all files, up to config_values_max. ERRORS: the first thing that a
// configuration must not have (daemon/config/reader.h), or that is not YAML.
std::expected<ConfigNode, ConfigYamlError> parse_config_yaml(const std::string& text,
                                                             std::size_t file, std::size_t& values);

// What a later file says: lists go on, mappings have more keys, anything else is replaced.
void merge_config(ConfigNode& into, ConfigNode more);

}  // namespace rnbd
