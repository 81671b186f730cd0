// A reader for YAML configuration that reports all errors at once, of one file or of several files
// that are one configuration.
//
//   ConfigDocument document(text, "server.yaml");
//   document.root().map([&](ConfigMap& map) {
//       map.required("name", config_text(1, 254), config.name);
//       map.optional("queue_depth", config_integer<std::uint32_t>(1, 65535), config.queue_depth);
//       map.optional_list("exports", {}, [&](ConfigValue item) { item.map(...); });
//   });
//   if (!document.errors().empty()) ...
//
// The keys that the caller asks for are the schema: other keys are reported as unknown, with the
// nearest known key. Errors have the line, the column and the whole key
// ("exports[0].allow[1].access").
//
// The input may be any bytes. These are errors, too: files larger than config_bytes_max, aliases
// and anchors (which YAML bombs are made of), tags, several documents, deep nesting, bytes that are
// not UTF-8, and duplicate keys. Nothing here throws, except when there is no memory.
//
// OWNER: the caller owns the document; values and maps refer into it. THREAD: any; one at a time.
#pragma once

#include <cstddef>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/error.h"
#include "daemon/config/types.h"

namespace rnbd {

// The longest configuration that is read, all files together.
constexpr std::size_t config_bytes_max = 4u << 20;
// How many errors are kept; one more line says how many further ones there were.
constexpr std::size_t config_errors_max = 100;

// How many elements a list must have.
struct ConfigListBounds {
    std::size_t min = 0;
    std::size_t max = 65536;
};

struct ConfigNode;
class ConfigMap;
class ConfigDocument;

// One value in the document, together with its whole key.
class ConfigValue {
  public:
    // Reports an error at this value.
    void error(std::string_view text) const;
    // Reads a scalar. False (target unchanged, error reported) if the value has another form.
    template <typename T>
    bool scalar(const ConfigType<T>& type, T& target) const;
    // Reads a mapping, and afterwards reports the keys that `read` did not ask for. An empty value
    // counts as an empty mapping. False (error reported) if the value has another form.
    bool map(const std::function<void(ConfigMap&)>& read) const;
    // Calls `read` for each element. An empty value counts as an empty list.
    bool list(ConfigListBounds bounds, const std::function<void(ConfigValue)>& read) const;
    bool is_list() const noexcept;

  private:
    friend class ConfigMap;
    friend class ConfigDocument;
    ConfigValue(ConfigDocument& document, const ConfigNode& node, std::string key)
        : document_(&document), node_(&node), key_(std::move(key)) {}
    // The scalar's text; empty (error reported) if there is none.
    std::optional<std::string_view> text(std::string_view expected) const;
    void mismatch(std::string_view found, std::string_view expected,
                  const std::vector<std::string>& words) const;
    std::string child_key(std::string_view name) const;

    ConfigDocument* document_;
    const ConfigNode* node_;
    std::string key_;
};

// A mapping while it is being read.
class ConfigMap {
  public:
    // True if the key is present and its value was read into target. Absence is an error for
    // required(), and leaves target as it is (its default) for optional().
    template <typename T>
    bool required(std::string_view key, const ConfigType<T>& type, T& target) {
        const auto value = require(key, type.expected);
        return value && value->scalar(type, target);
    }
    template <typename T>
    bool optional(std::string_view key, const ConfigType<T>& type, T& target) {
        const auto value = find(key);
        return value && value->scalar(type, target);
    }
    template <typename T>
    bool optional(std::string_view key, const ConfigType<T>& type, std::optional<T>& target) {
        T read{};
        const auto value = find(key);
        if (!value || !value->scalar(type, read)) return false;
        target = std::move(read);
        return true;
    }
    bool optional_map(std::string_view key, const std::function<void(ConfigMap&)>& read);
    bool required_list(std::string_view key, ConfigListBounds bounds,
                       const std::function<void(ConfigValue)>& read);
    bool optional_list(std::string_view key, ConfigListBounds bounds,
                       const std::function<void(ConfigValue)>& read);
    // The value of a key, if it is there. The key is part of the schema from now on.
    std::optional<ConfigValue> find(std::string_view key);
    // The same, but absence is reported as an error.
    std::optional<ConfigValue> require(std::string_view key, std::string_view expected);
    // Reports an error at a key's value, or at the mapping if the key is absent.
    void error(std::string_view key, std::string_view text) const;
    // The same for something that is not an error: it is ignored, and the user should know.
    void warning(std::string_view key, std::string_view text) const;
    // The place that error() would report, as "server.yaml:12".
    std::string place(std::string_view key) const;

  private:
    friend class ConfigValue;
    explicit ConfigMap(const ConfigValue& value);
    const ConfigNode& node_at(std::string_view key) const;
    void report_unknown_keys() const;

    const ConfigValue& value_;
    // By key: the index of its value in the node's children.
    std::map<std::string, std::size_t, std::less<>> values_;
    std::vector<std::string> known_;
};

// A file's content, and its name in errors.
struct ConfigSource {
    std::string file;
    std::string text;
};

// Parsed files, and all errors found in them so far. It cannot be moved.
class ConfigDocument {
  public:
    // sources: one or more files, in order. A list in several files is concatenated, a mapping has
    // the keys of all files, and of any other value the last one counts. Text that is not YAML is
    // reported as an error.
    explicit ConfigDocument(const std::vector<ConfigSource>& sources);
    ConfigDocument(std::string_view text, std::string file);
    ~ConfigDocument();
    ConfigDocument(const ConfigDocument&) = delete;
    ConfigDocument& operator=(const ConfigDocument&) = delete;

    ConfigValue root();
    // False if a text is not YAML; then reading the root would only add misleading errors.
    bool well_formed() const noexcept { return well_formed_; }
    // The errors in the order of files and lines. Call it when reading is over.
    std::vector<ConfigError> errors() const;
    const std::vector<ConfigError>& warnings() const noexcept { return warnings_; }

  private:
    friend class ConfigMap;
    friend class ConfigValue;
    // file: its index. line, column: from 1; 0: the whole file.
    struct Place {
        std::size_t file = 0, line = 0, column = 0;
        auto operator<=>(const Place&) const = default;
    };
    void add_error(const ConfigNode& node, std::string_view key, std::string_view text);
    void add_warning(const ConfigNode& node, std::string_view key, std::string_view text);
    void add_error_at(Place place, std::string_view key, std::string_view text);
    void read_source(const std::string& text, std::size_t& values);

    std::vector<std::string> files_;
    std::unique_ptr<ConfigNode> root_;
    std::vector<std::pair<Place, ConfigError>> errors_;
    std::size_t errors_dropped_ = 0;
    std::vector<ConfigError> warnings_;
    bool well_formed_ = false;
};

// Reads a whole configuration, with `read` as the schema of its root mapping. Warnings are put into
// the configuration's member `warnings`, if it has one.
template <typename Config>
std::expected<Config, std::vector<ConfigError>> read_config(
    const std::vector<ConfigSource>& sources,
    const std::function<void(ConfigMap&, Config&)>& read) {
    ConfigDocument document(sources);
    Config config;
    if (document.well_formed()) document.root().map([&](ConfigMap& map) { read(map, config); });
    if (auto errors = document.errors(); !errors.empty()) return std::unexpected(std::move(errors));
    if constexpr (requires { config.warnings; }) config.warnings = document.warnings();
    return config;
}

template <typename T>
bool ConfigValue::scalar(const ConfigType<T>& type, T& target) const {
    const auto found = text(type.expected);
    if (!found) return false;
    auto value = type.parse(*found);
    if (!value) {
        mismatch(*found, type.expected, type.words);
        return false;
    }
    target = std::move(*value);
    return true;
}

}  // namespace rnbd
