#include "daemon/config/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "daemon/config/yaml_complaint.h"
#include "daemon/config/yaml_place.h"
#include "daemon/utf8.h"

namespace rnbd {
namespace {

// Longest piece of user text that is quoted in an error.
constexpr std::size_t quoted_bytes_max = 80;

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
    // Of the document.
    const YAML::Mark& start() const noexcept { return start_; }

    void OnDocumentStart(const YAML::Mark& mark) override { start_ = mark; }
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
                          "found the tag " + config_quoted(tag) + ", expected a value without tag"};
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
    YAML::Mark start_;
    std::optional<ConfigNode> root_;
    std::vector<ConfigNode> open_;
};

// Everything that must not get as far as the YAML parser.
std::optional<ConfigYamlError> wrong_byte(std::string_view text) {
    std::size_t line = 1;
    std::size_t line_start = 0;
    for (std::size_t i = 0; i < text.size();) {
        const std::size_t bytes = utf8_bytes(text.substr(i));
        const auto byte = static_cast<unsigned char>(text[i]);
        const bool control =
            (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f;
        if (bytes == 0 || control) {
            return ConfigYamlError{
                line, i - line_start + 1,
                fmt::format("found the byte 0x{:02x}, expected UTF-8 text", byte)};
        }
        if (byte == '\n') {
            ++line;
            line_start = i + 1;
        }
        i += bytes;
    }
    return std::nullopt;
}

ConfigNode* value_of(ConfigNode& map, const ConfigNode& key) {
    if (key.kind != ConfigNode::Kind::scalar) return nullptr;
    for (std::size_t i = 0; i + 1 < map.children.size(); i += 2) {
        const ConfigNode& known = map.children[i];
        if (known.file != key.file && known.kind == key.kind && known.text == key.text)
            return &map.children[i + 1];
    }
    return nullptr;
}

// Where quotes are open up to the end, the parser names the end.
ConfigYamlError what_the_parser_found(std::string_view text, const YAML::Exception& exception) {
    const auto line = static_cast<std::size_t>(std::max(exception.mark.line, 0));
    if (const auto tab = config_tab_near(text, line)) {
        return {tab->line, tab->column,
                "found a tab in the indent of the line, expected spaces: YAML takes no tabs there "
                "(the parser says: " +
                    exception.msg + ")"};
    }
    std::string complaint = config_yaml_complaint(exception.msg);
    if (config_quotes_are_open(exception.msg)) {
        if (const auto quote = config_open_quote(text))
            return {quote->line, quote->column, std::move(complaint)};
    }
    const auto column = static_cast<std::size_t>(std::max(exception.mark.column, 0));
    const ConfigTextPlace place = config_place_inside(text, {line, column});
    return {place.line + 1, place.column + 1, std::move(complaint)};
}

}  // namespace

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

std::string config_shortened(std::string_view text) {
    if (text.size() <= quoted_bytes_max) return std::string(text);
    return std::string(text.substr(0, quoted_bytes_max)) + "...";
}

std::string config_quoted(std::string_view text) { return '"' + config_shortened(text) + '"'; }

std::expected<ConfigNode, ConfigYamlError> parse_config_yaml(const std::string& text,
                                                             std::size_t file,
                                                             std::size_t& values) {
    if (auto wrong = wrong_byte(text)) return std::unexpected(std::move(*wrong));
    const auto failed_at = [](const YAML::Mark& mark, std::string what) {
        return std::unexpected(ConfigYamlError{
            static_cast<std::size_t>(std::max(mark.line, 0)) + 1,
            static_cast<std::size_t>(std::max(mark.column, 0)) + 1, std::move(what)});
    };
    const auto failed = [](std::string what) {
        return std::unexpected(ConfigYamlError{0, 0, std::move(what)});
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
            return failed_at(second.start(), "found a second document (---), expected one");
        }
        auto root = first.take_root();
        if (!root || root->kind == ConfigNode::Kind::null) return ConfigNode{};
        if (root->kind != ConfigNode::Kind::map) {
            return std::unexpected(ConfigYamlError{
                root->line + 1, root->column + 1,
                fmt::format("found {}, expected a mapping (key: value)", describe(root->kind))});
        }
        return std::move(*root);
    } catch (const Refused& refused) {
        return failed_at(refused.mark, refused.text);
    } catch (const YAML::Exception& exception) {
        return std::unexpected(what_the_parser_found(text, exception));
    } catch (const std::exception& exception) {
        return failed(std::string("found no valid YAML: ") + exception.what());
    }
}

void merge_config(ConfigNode& into, ConfigNode more) {
    using Kind = ConfigNode::Kind;
    if (into.kind == Kind::list && more.kind == Kind::list) {
        std::ranges::move(more.children, std::back_inserter(into.children));
    } else if (into.kind == Kind::map && more.kind == Kind::map) {
        std::set<std::string> said;
        for (std::size_t i = 0; i + 1 < more.children.size(); i += 2) {
            ConfigNode* const known = value_of(into, more.children[i]);
            // A key that one file says twice is left for ConfigMap to find.
            if (known != nullptr && said.insert(more.children[i].text).second) {
                merge_config(*known, std::move(more.children[i + 1]));
                continue;
            }
            into.children.push_back(std::move(more.children[i]));
            into.children.push_back(std::move(more.children[i + 1]));
        }
    } else if (more.kind != Kind::null) {
        into = std::move(more);
    }
}

}  // namespace rnbd
