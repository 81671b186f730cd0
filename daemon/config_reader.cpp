#include "daemon/config_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>

namespace rnbd {

struct ConfigNode {
    enum class Kind : std::uint8_t { null, scalar, list, map };
    Kind kind = Kind::null;
    // Index of the file it stands in.
    std::size_t file = 0;
    // As yaml-cpp counts: from 0.
    std::size_t line = 0;
    std::size_t column = 0;
    std::string text{};
    // list: the elements; map: key, value, key, value, ...
    std::vector<ConfigNode> children{};
};

namespace {

// Longest piece of user text that is quoted in an error.
constexpr std::size_t quoted_bytes_max = 80;

std::string shortened(std::string_view text) {
    if (text.size() <= quoted_bytes_max) return std::string(text);
    return std::string(text.substr(0, quoted_bytes_max)) + "...";
}

std::string in_quotes(std::string_view text) { return '"' + shortened(text) + '"'; }

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

// A reason of ours to stop in the middle of a document.
struct Refused {
    YAML::Mark mark;
    std::string text;
};

// Turns yaml-cpp's events into a tree with positions. Events, not YAML::Node: that one loses
// duplicate keys and expands aliases.
class TreeBuilder : public YAML::EventHandler {
  public:
    // values: counted over all files.
    TreeBuilder(std::size_t file, std::size_t& values) : file_(file), values_(values) {}
    std::optional<ConfigNode> take_root() { return std::move(root_); }

    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
        refuse_anchor(mark, anchor);
        add(node(ConfigNode::Kind::null, mark), mark);
    }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
        throw Refused{mark, "found an alias (*), write the value out"};
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& value) override {
        refuse_anchor(mark, anchor);
        refuse_tag(mark, tag);
        ConfigNode scalar = node(ConfigNode::Kind::scalar, mark);
        scalar.text = value;
        add(std::move(scalar), mark);
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        begin(ConfigNode::Kind::list, mark, tag, anchor);
    }
    void OnSequenceEnd() override { end(); }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
        begin(ConfigNode::Kind::map, mark, tag, anchor);
    }
    void OnMapEnd() override { end(); }

  private:
    ConfigNode node(ConfigNode::Kind kind, const YAML::Mark& mark) const {
        return {.kind = kind,
                .file = file_,
                .line = static_cast<std::size_t>(std::max(mark.line, 0)),
                .column = static_cast<std::size_t>(std::max(mark.column, 0))};
    }
    static void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
        if (anchor != 0) throw Refused{mark, "found an anchor (&), write the value out"};
    }
    static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
        // "?": plain; "!": quoted.
        if (!tag.empty() && tag != "?" && tag != "!")
            throw Refused{mark,
                          "found the tag " + in_quotes(tag) + ", expected a value without tag"};
    }
    void begin(ConfigNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
               YAML::anchor_t anchor) {
        refuse_anchor(mark, anchor);
        refuse_tag(mark, tag);
        count(mark);
        if (open_.size() >= config_depth_max)
            throw Refused{mark, fmt::format("found values nested too deeply, expected at most {}",
                                            config_depth_max)};
        open_.push_back(node(kind, mark));
    }
    void end() {
        ConfigNode done = std::move(open_.back());
        open_.pop_back();
        if (done.kind == ConfigNode::Kind::map) place_empty_values(done);
        attach(std::move(done));
    }
    // An empty value has no place of its own (yaml-cpp gives that of whatever comes next): its
    // key's.
    static void place_empty_values(ConfigNode& map) {
        for (std::size_t i = 0; i + 1 < map.children.size(); i += 2) {
            if (map.children[i + 1].kind != ConfigNode::Kind::null) continue;
            map.children[i + 1].line = map.children[i].line;
            map.children[i + 1].column = map.children[i].column;
        }
    }
    void add(ConfigNode leaf, const YAML::Mark& mark) {
        count(mark);
        attach(std::move(leaf));
    }
    void attach(ConfigNode done) {
        if (open_.empty())
            root_ = std::move(done);
        else
            open_.back().children.push_back(std::move(done));
    }
    void count(const YAML::Mark& mark) {
        if (++values_ > config_values_max)
            throw Refused{mark, fmt::format("found more than {} values", config_values_max)};
    }

    const std::size_t file_;
    std::size_t& values_;
    std::optional<ConfigNode> root_;
    std::vector<ConfigNode> open_;
};

ConfigNode* value_of(ConfigNode& map, const ConfigNode& key) {
    if (key.kind != ConfigNode::Kind::scalar) return nullptr;
    for (std::size_t i = 0; i + 1 < map.children.size(); i += 2) {
        const ConfigNode& known = map.children[i];
        if (known.file != key.file && known.kind == key.kind && known.text == key.text)
            return &map.children[i + 1];
    }
    return nullptr;
}

// What a later file says: lists go on, mappings have more keys, anything else is replaced.
void merge(ConfigNode& into, ConfigNode more) {
    using Kind = ConfigNode::Kind;
    if (into.kind == Kind::null) {
        into = std::move(more);
    } else if (into.kind == Kind::list && more.kind == Kind::list) {
        std::ranges::move(more.children, std::back_inserter(into.children));
    } else if (into.kind == Kind::map && more.kind == Kind::map) {
        std::set<std::string> said;
        for (std::size_t i = 0; i + 1 < more.children.size(); i += 2) {
            ConfigNode* const known = value_of(into, more.children[i]);
            // A key that one file says twice is left for ConfigMap to find.
            if (known != nullptr && said.insert(more.children[i].text).second) {
                merge(*known, std::move(more.children[i + 1]));
                continue;
            }
            into.children.push_back(std::move(more.children[i]));
            into.children.push_back(std::move(more.children[i + 1]));
        }
    } else if (more.kind != Kind::null) {
        into = std::move(more);
    }
}

// Bytes of the UTF-8 sequence that starts the text, 0 if it is none.
std::size_t utf8_bytes(std::string_view text) noexcept {
    const auto at = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
    };
    const unsigned first = at(0);
    const auto follows = [&](std::size_t i) { return (at(i) & 0xc0u) == 0x80u; };
    if (first < 0x80) return 1;
    if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
    if (first >= 0xe0 && first < 0xf0) {
        const bool overlong = first == 0xe0 && at(1) < 0xa0;
        const bool surrogate = first == 0xed && at(1) >= 0xa0;
        return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
    }
    if (first >= 0xf0 && first < 0xf5) {
        const bool overlong = first == 0xf0 && at(1) < 0x90;
        const bool beyond = first == 0xf4 && at(1) >= 0x90;
        return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4 : 0;
    }
    return 0;
}

const char* describe(ConfigNode::Kind kind) noexcept {
    switch (kind) {
        case ConfigNode::Kind::null:
            return "nothing";
        case ConfigNode::Kind::scalar:
            return "a single value";
        case ConfigNode::Kind::list:
            return "a list";
        case ConfigNode::Kind::map:
            return "a mapping";
    }
    return "";
}

std::string suggestion(std::string_view what, std::string_view word,
                       const std::vector<std::string>& words) {
    const std::string nearest = nearest_word(word, words);
    if (nearest.empty()) return "";
    return fmt::format(", nearest valid {} \"{}\"", what, nearest);
}

// Edits between two words: insert, delete, replace, swap of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> two_ago(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replace = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replace});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], two_ago[j - 2] + 1);
        }
        std::swap(two_ago, previous);
        std::swap(previous, row);
    }
    return previous[b.size()];
}

std::string lower_case(std::string_view text) {
    std::string result(text);
    for (char& c : result)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return result;
}

}  // namespace

std::string to_string(const ConfigError& error) {
    std::string result = error.file;
    if (error.line != 0) result += fmt::format(":{}:{}", error.line, error.column);
    if (!error.key.empty()) result += ": " + error.key;
    return result + ": " + error.text;
}

std::string config_errors_text(const std::vector<ConfigError>& errors, std::string_view prefix) {
    std::string text;
    for (const ConfigError& error : errors) {
        std::string_view key = error.key;
        if (key.starts_with(prefix)) key.remove_prefix(prefix.size());
        text +=
            (text.empty() ? "" : "; ") + std::string(key) + (key.empty() ? "" : ": ") + error.text;
    }
    return text;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& words) {
    constexpr std::size_t word_bytes_max = 64;
    if (word.empty() || word.size() > word_bytes_max) return "";
    std::string nearest;
    std::size_t least = std::max<std::size_t>(2, word.size() / 2) + 1;
    for (const std::string& candidate : words) {
        const std::size_t distance = edit_distance(lower_case(word), lower_case(candidate));
        // Replacing every letter is no resemblance.
        if (distance < least && distance < std::max(word.size(), candidate.size())) {
            least = distance;
            nearest = candidate;
        }
    }
    return nearest;
}

// --- ConfigValue ---

void ConfigValue::error(std::string_view text) const { document_->add_error(*node_, key_, text); }

std::optional<std::string_view> ConfigValue::text(std::string_view expected) const {
    if (node_->kind == ConfigNode::Kind::scalar) return node_->text;
    error(fmt::format("found {}, expected {}", describe(node_->kind), expected));
    return std::nullopt;
}

void ConfigValue::mismatch(std::string_view found, std::string_view expected,
                           const std::vector<std::string>& words) const {
    error(fmt::format("found {}, expected {}{}", in_quotes(found), expected,
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
            report(value.child_key(shortened(key.text)),
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
            node, value_.child_key(shortened(key)),
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
    if (!check_bytes(text)) return;
    const std::size_t file = files_.size() - 1;
    const auto fail = [&](const YAML::Mark& mark, std::string_view what) {
        add_error_at({file, static_cast<std::size_t>(std::max(mark.line, 0)) + 1,
                      static_cast<std::size_t>(std::max(mark.column, 0)) + 1},
                     "", what);
    };
    // The end marker inside of a quoted text is an error; without it yaml-cpp takes the end of the
    // file for the closing quote.
    std::istringstream stream{text + "\n...\n"};
    try {
        YAML::Parser parser(stream);
        TreeBuilder first(file, values);
        parser.HandleNextDocument(first);
        TreeBuilder second(file, values);
        if (parser.HandleNextDocument(second)) {
            return add_error_at({file}, "", "found a second document (---), expected one");
        }
        auto root = first.take_root();
        if (!root || root->kind == ConfigNode::Kind::null) return;
        if (root->kind != ConfigNode::Kind::map) {
            return add_error(
                *root, "",
                fmt::format("found {}, expected a mapping (key: value)", describe(root->kind)));
        }
        merge(*root_, std::move(*root));
    } catch (const Refused& refused) {
        fail(refused.mark, refused.text);
    } catch (const YAML::Exception& exception) {
        fail(exception.mark, "found no valid YAML: " + exception.msg);
    } catch (const std::exception& exception) {
        add_error_at({file}, "", std::string("found no valid YAML: ") + exception.what());
    }
}

ConfigDocument::~ConfigDocument() = default;

ConfigValue ConfigDocument::root() { return ConfigValue(*this, *root_, ""); }

// Everything that must not get as far as the YAML parser.
bool ConfigDocument::check_bytes(std::string_view text) {
    std::size_t line = 1;
    std::size_t line_start = 0;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t bytes = utf8_bytes(text.substr(i));
        const auto byte = static_cast<unsigned char>(text[i]);
        const bool control =
            (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f;
        if (bytes == 0 || control) {
            add_error_at({files_.size() - 1, line, i - line_start + 1}, "",
                         fmt::format("found the byte 0x{:02x}, expected UTF-8 text", byte));
            return false;
        }
        if (byte == '\n') {
            ++line;
            line_start = i + 1;
        }
        i += bytes;
    }
    return true;
}

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

// --- the files ---

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
