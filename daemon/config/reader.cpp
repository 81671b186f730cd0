#include "daemon/config/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/config/nearest_word.h"
#include "daemon/config/yaml.h"

namespace rnbd {
namespace {

// What a file says may not forge lines of an error.
std::string on_one_line(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            result += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        else
            result += c;
    }
    return result;
}

std::string suggestion(std::string_view what, std::string_view word,
                       const std::vector<std::string>& words) {
    const std::string nearest = nearest_word(word, words);
    if (nearest.empty()) return "";
    return fmt::format(", nearest valid {} \"{}\"", what, nearest);
}

}  // namespace

// --- ConfigValue ---

void ConfigValue::error(std::string_view text) const { document_->add_error(*node_, key_, text); }

std::optional<std::string_view> ConfigValue::text(std::string_view expected) const {
    if (node_->kind == ConfigNode::Kind::scalar) return node_->text;
    error(fmt::format("found {}, expected {}", describe(node_->kind), expected));
    return std::nullopt;
}

void ConfigValue::mismatch(std::string_view found, std::string_view expected,
                           const std::vector<std::string>& words) const {
    error(fmt::format("found {}, expected {}{}", config_quoted(found), expected,
                      suggestion("value", found, words)));
}

std::string ConfigValue::child_key(std::string_view name) const {
    return key_.empty() ? std::string(name) : fmt::format("{}.{}", key_, name);
}

bool ConfigValue::is_list() const noexcept { return node_->kind == ConfigNode::Kind::list; }

bool ConfigValue::map(const std::function<void(ConfigMap&)>& read) const {
    if (node_->kind != ConfigNode::Kind::map && node_->kind != ConfigNode::Kind::null) {
        error(fmt::format("found {}, expected a mapping (key: value)", describe(node_->kind)));
        return false;
    }
    ConfigMap map(*this);
    read(map);
    map.report_unknown_keys();
    return true;
}

bool ConfigValue::list(ConfigListBounds bounds,
                       const std::function<void(ConfigValue)>& read) const {
    if (node_->kind != ConfigNode::Kind::list && node_->kind != ConfigNode::Kind::null) {
        error(fmt::format("found {}, expected a list (- ...)", describe(node_->kind)));
        return false;
    }
    const std::size_t count = node_->children.size();
    if (count < bounds.min)
        error(fmt::format("found {} elements, expected at least {}", count, bounds.min));
    if (count > bounds.max) {
        error(fmt::format("found {} elements, expected at most {}", count, bounds.max));
        return false;
    }
    // Counted as its file counts.
    std::size_t index = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (i > 0 && node_->children[i].file != node_->children[i - 1].file) index = 0;
        read(ConfigValue(*document_, node_->children[i], fmt::format("{}[{}]", key_, index++)));
    }
    return count >= bounds.min;
}

// --- ConfigMap ---

ConfigMap::ConfigMap(const ConfigValue& value) : value_(value) {
    std::map<std::string_view, const ConfigNode*> first;
    const auto& children = value.node_->children;
    for (std::size_t i = 0; i + 1 < children.size(); i += 2) {
        const ConfigNode& key = children[i];
        const auto report = [&](std::string_view name, std::string_view text) {
            value.document_->add_error(key, name, text);
        };
        if (key.kind != ConfigNode::Kind::scalar) {
            report(value.key_,
                   fmt::format("found {} as a key, expected a word", describe(key.kind)));
            continue;
        }
        const auto [earlier, inserted] = first.emplace(key.text, &key);
        if (!inserted) {
            report(value.child_key(config_shortened(key.text)),
                   fmt::format("found the key a second time, expected it once (first at {}:{})",
                               on_one_line(value.document_->files_[earlier->second->file]),
                               earlier->second->line + 1));
            continue;
        }
        values_.emplace(key.text, i + 1);
    }
}

std::optional<ConfigValue> ConfigMap::find(std::string_view key) {
    if (std::ranges::find(known_, key) == known_.end()) known_.emplace_back(key);
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return ConfigValue(*value_.document_, value_.node_->children[found->second],
                       value_.child_key(key));
}

std::optional<ConfigValue> ConfigMap::require(std::string_view key, std::string_view expected) {
    auto value = find(key);
    if (!value)
        value_.document_->add_error(*value_.node_, value_.child_key(key),
                                    fmt::format("found no such key, expected {}", expected));
    return value;
}

bool ConfigMap::optional_map(std::string_view key, const std::function<void(ConfigMap&)>& read) {
    const auto value = find(key);
    return value && value->map(read);
}

bool ConfigMap::required_list(std::string_view key, ConfigListBounds bounds,
                              const std::function<void(ConfigValue)>& read) {
    const auto value = require(key, "a list (- ...)");
    return value && value->list(bounds, read);
}

bool ConfigMap::optional_list(std::string_view key, ConfigListBounds bounds,
                              const std::function<void(ConfigValue)>& read) {
    const auto value = find(key);
    return value && value->list(bounds, read);
}

void ConfigMap::error(std::string_view key, std::string_view text) const {
    value_.document_->add_error(node_at(key), value_.child_key(key), text);
}

void ConfigMap::warning(std::string_view key, std::string_view text) const {
    value_.document_->add_warning(node_at(key), value_.child_key(key), text);
}

const ConfigNode& ConfigMap::node_at(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? *value_.node_ : value_.node_->children[found->second];
}

std::string ConfigMap::place(std::string_view key) const {
    const ConfigNode& node = node_at(key);
    return fmt::format("{}:{}", on_one_line(value_.document_->files_[node.file]), node.line + 1);
}

void ConfigMap::report_unknown_keys() const {
    for (const auto& [key, index] : values_) {
        if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
        const ConfigNode& node = value_.node_->children[index - 1];
        value_.document_->add_error(
            node, value_.child_key(config_shortened(key)),
            fmt::format("found an unknown key, expected {}{}", config_join_words(known_),
                        suggestion("key", key, known_)));
    }
}

// --- ConfigDocument ---

ConfigDocument::ConfigDocument(const std::vector<ConfigSource>& sources)
    : root_(std::make_unique<ConfigNode>()) {
    std::size_t values = 0;
    std::size_t bytes = 0;
    for (const ConfigSource& source : sources) {
        files_.push_back(source.file);
        bytes += source.text.size();
        if (bytes > config_bytes_max) {
            add_error_at(
                {}, "",
                fmt::format("found {} bytes, expected at most {}{}", bytes, config_bytes_max,
                            files_.size() > 1 ? " with the files before it" : ""));
            return;
        }
        read_source(source.text, values);
    }
    well_formed_ = errors_.empty();
}

ConfigDocument::ConfigDocument(std::string_view text, std::string file)
    : ConfigDocument(std::vector{ConfigSource{std::move(file), std::string(text)}}) {}

void ConfigDocument::read_source(const std::string& text, std::size_t& values) {
    const std::size_t file = files_.size() - 1;
    auto parsed = parse_config_yaml(text, file, values);
    if (!parsed) {
        const ConfigYamlError& error = parsed.error();
        return add_error_at({file, error.line, error.column}, "", error.text);
    }
    merge_config(*root_, std::move(*parsed));
}

ConfigDocument::~ConfigDocument() = default;

ConfigValue ConfigDocument::root() { return ConfigValue(*this, *root_, ""); }

void ConfigDocument::add_error(const ConfigNode& node, std::string_view key,
                               std::string_view text) {
    add_error_at({node.file, node.line + 1, node.column + 1}, key, text);
}

void ConfigDocument::add_error_at(Place place, std::string_view key, std::string_view text) {
    if (errors_.size() >= config_errors_max) {
        ++errors_dropped_;
        return;
    }
    errors_.emplace_back(place, ConfigError{files_[place.file], place.line, place.column,
                                            on_one_line(key), on_one_line(text)});
}

void ConfigDocument::add_warning(const ConfigNode& node, std::string_view key,
                                 std::string_view text) {
    if (warnings_.size() >= config_errors_max) return;
    warnings_.push_back(
        {files_[node.file], node.line + 1, node.column + 1, on_one_line(key), on_one_line(text)});
}

std::vector<ConfigError> ConfigDocument::errors() const {
    auto sorted = errors_;
    std::ranges::stable_sort(sorted, {}, [](const auto& error) { return error.first; });
    std::vector<ConfigError> result;
    for (auto& [place, error] : sorted) result.push_back(std::move(error));
    if (errors_dropped_ > 0)
        result.push_back(
            {files_.front(), 0, 0, "", fmt::format("and {} more errors", errors_dropped_)});
    return result;
}

}  // namespace rnbd
