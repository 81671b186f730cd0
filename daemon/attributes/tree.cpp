#include "daemon/attributes/tree.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

using Segments = std::vector<std::string>;

// Links on the way of one path, as the kernel's limit.
constexpr int links_max = 40;

std::unexpected<AttributeError> fail(int number) {
    return std::unexpected(AttributeError{number, ""});
}

Segments split(std::string_view path) {
    Segments segments;
    while (!path.empty()) {
        const auto slash = path.find('/');
        if (slash != 0) segments.emplace_back(path.substr(0, slash));
        if (slash == std::string_view::npos) break;
        path.remove_prefix(slash + 1);
    }
    return segments;
}

Segments segments_of(std::string_view path) {
    if (path == "/sys" || path.starts_with("/sys/")) path.remove_prefix(4);
    return split(path);
}

std::string joined(const Segments& segments) {
    std::string path;
    for (const auto& segment : segments) path += (path.empty() ? "" : "/") + segment;
    return path;
}

bool is_variable(std::string_view segment) { return segment.starts_with('{'); }

// Where a relative link in `folder` leads to; empty if that is outside of the tree.
std::expected<Segments, AttributeError> follow(Segments folder, std::string_view target) {
    if (target.starts_with('/')) return fail(ENOENT);
    for (auto& segment : split(target)) {
        if (segment == ".") continue;
        if (segment != "..") {
            folder.push_back(std::move(segment));
        } else if (!folder.empty()) {
            folder.pop_back();
        }
    }
    return folder;
}

}  // namespace

unsigned Attribute::mode() const noexcept {
    if (kind == Kind::link) return 0777;
    return write ? 0644 : 0444;
}

std::string_view AttributeNode::name() const noexcept {
    const auto slash = path.rfind('/');
    return std::string_view(path).substr(slash == std::string::npos ? 0 : slash + 1);
}

const char* to_string(AttributeNode::Kind kind) noexcept {
    switch (kind) {
        case AttributeNode::Kind::directory:
            return "directory";
        case AttributeNode::Kind::file:
            return "file";
        case AttributeNode::Kind::link:
            return "link";
    }
    return "?";
}

// One look at the tree: what a variable stands for is asked once.
struct AttributeTree::Walk {
    struct Known {
        Segments names;
        std::set<std::string_view> set;
    };
    const AttributeTree& tree;
    std::map<std::pair<std::string, Segments>, Known> known{};

    const Known& of(const std::string& variable, const Segments& outer) {
        const auto [found, is_new] = known.try_emplace({variable, outer});
        if (is_new) {
            found->second.names = tree.variables_.at(variable)(outer);
            found->second.set = {found->second.names.begin(), found->second.names.end()};
        }
        return found->second;
    }
    const Segments& names(const std::string& variable, const Segments& outer) {
        return of(variable, outer).names;
    }
    bool has(const std::string& variable, const Segments& outer, const std::string& name) {
        return of(variable, outer).set.contains(name);
    }
};

void AttributeTree::add_variable(std::string name, Names names) {
    RTRS_ASSERT(is_variable(name));
    variables_.emplace(std::move(name), std::move(names));
}

void AttributeTree::around_list(std::function<void()> before, std::function<void()> after) {
    before_list_ = std::move(before);
    after_list_ = std::move(after);
}

void AttributeTree::add(Attribute attribute) {
    RTRS_ASSERT(attribute.read != nullptr);
    Segments pattern = split(attribute.pattern);
    for (const auto& segment : pattern) {
        RTRS_ASSERT(!is_variable(segment) || variables_.contains(segment));
    }
    patterns_.push_back(std::move(pattern));
    attributes_.push_back(std::move(attribute));
}

const AttributeTree::Segments& AttributeTree::pattern_of(const Match& match) const {
    return patterns_[static_cast<std::size_t>(match.attribute - attributes_.data())];
}

// The attributes at or below a path, each with what its variables stand for so far.
std::vector<AttributeTree::Match> AttributeTree::matches(Walk& walk, const Segments& path) const {
    std::vector<Match> found;
    for (std::size_t i = 0; i < attributes_.size(); ++i) {
        const Segments& pattern = patterns_[i];
        if (pattern.size() < path.size()) continue;
        Match match{&attributes_[i], {}};
        bool same = true;
        for (std::size_t at = 0; same && at < path.size(); ++at) {
            if (!is_variable(pattern[at])) {
                same = pattern[at] == path[at];
                continue;
            }
            same = walk.has(pattern[at], match.scope, path[at]);
            match.scope.push_back(path[at]);
        }
        if (same) found.push_back(std::move(match));
    }
    return found;
}

// Follows the links that are not at the path's end.
std::expected<Segments, AttributeError> AttributeTree::resolve(std::string_view path) const {
    Segments left = segments_of(path);
    Segments done;
    Walk walk{*this};
    for (int links = 0; !left.empty();) {
        done.push_back(std::move(left.front()));
        left.erase(left.begin());
        if (left.empty()) break;
        const auto found = matches(walk, done);
        if (found.empty()) return fail(ENOENT);
        const Attribute& attribute = *found.front().attribute;
        if (pattern_of(found.front()).size() != done.size()) continue;
        if (attribute.kind != Attribute::Kind::link) return fail(ENOTDIR);
        if (++links > links_max) return fail(ELOOP);
        const auto target = attribute.read(found.front().scope);
        if (!target) return std::unexpected(target.error());
        done.pop_back();
        auto next = follow(std::move(done), *target);
        if (!next) return next;
        next->insert(next->end(), left.begin(), left.end());
        left = std::move(*next);
        done.clear();
    }
    return done;
}

// match: of a whole pattern. ERRORS: a link's.
std::expected<AttributeNode, AttributeError> AttributeTree::node_of(const Match& match,
                                                                    std::string path) const {
    const Attribute& attribute = *match.attribute;
    AttributeNode node{.path = std::move(path),
                       .kind = AttributeNode::Kind::file,
                       .mode = attribute.mode(),
                       .target = {}};
    if (attribute.kind == Attribute::Kind::file) return node;
    auto target = attribute.read(match.scope);
    if (!target) return std::unexpected(target.error());
    node.kind = AttributeNode::Kind::link;
    node.target = std::move(*target);
    return node;
}

std::expected<AttributeNode, AttributeError> AttributeTree::find(std::string_view path) const {
    const auto segments = resolve(path);
    if (!segments) return std::unexpected(segments.error());
    Walk walk{*this};
    const auto found = matches(walk, *segments);
    if (found.empty() && !segments->empty()) return fail(ENOENT);
    for (const Match& match : found) {
        if (pattern_of(match).size() == segments->size()) return node_of(match, joined(*segments));
    }
    return AttributeNode{.path = joined(*segments), .target = {}};
}

std::expected<std::vector<AttributeNode>, AttributeError> AttributeTree::list(std::string_view path,
                                                                              Depth depth) const {
    if (before_list_) before_list_();
    auto nodes = nodes_below(path, depth);
    if (after_list_) after_list_();
    return nodes;
}

std::expected<std::vector<AttributeNode>, AttributeError> AttributeTree::nodes_below(
    std::string_view path, Depth depth) const {
    auto folder = find(path);
    // A link to a directory is as good as that.
    if (folder && folder->kind == AttributeNode::Kind::link) {
        auto at = split(folder->path);
        at.pop_back();
        const auto target = follow(std::move(at), folder->target);
        if (!target) return std::unexpected(target.error());
        folder = find(joined(*target));
    }
    if (!folder) return std::unexpected(folder.error());
    if (folder->kind != AttributeNode::Kind::directory) return fail(ENOTDIR);
    Walk walk{*this};
    std::vector<AttributeNode> nodes;
    collect(walk, split(folder->path), depth, nodes);
    return nodes;
}

void AttributeTree::collect(Walk& walk, const Segments& folder, Depth depth,
                            std::vector<AttributeNode>& into) const {
    // By name: what is there, or nothing for a directory.
    std::map<std::string, std::optional<Match>> children;
    for (const Match& match : matches(walk, folder)) {
        const Segments& pattern = pattern_of(match);
        if (pattern.size() == folder.size()) continue;
        const std::string& next = pattern[folder.size()];
        const bool last = pattern.size() == folder.size() + 1;
        if (!is_variable(next)) {
            children[next] = last ? std::optional(match) : std::nullopt;
            continue;
        }
        for (const std::string& name : walk.names(next, match.scope)) {
            std::optional<Match> child;
            if (last) child.emplace(match).scope.push_back(name);
            children[name] = std::move(child);
        }
    }
    for (const auto& [name, match] : children) {
        Segments path = folder;
        path.push_back(name);
        if (!match) {
            into.push_back({.path = joined(path), .target = {}});
            if (depth == Depth::all) collect(walk, path, depth, into);
        } else if (auto node = node_of(*match, joined(path))) {
            into.push_back(std::move(*node));
        }
    }
}

std::expected<AttributeTree::Match, AttributeError> AttributeTree::file_at(
    std::string_view path) const {
    const auto segments = resolve(path);
    if (!segments) return std::unexpected(segments.error());
    Walk walk{*this};
    auto found = matches(walk, *segments);
    if (found.empty()) return fail(segments->empty() ? EISDIR : ENOENT);
    for (Match& match : found) {
        if (pattern_of(match).size() != segments->size()) continue;
        if (match.attribute->kind == Attribute::Kind::file) return std::move(match);
    }
    return fail(EISDIR);
}

AttributeValue AttributeTree::read(std::string_view path) const {
    const auto match = file_at(path);
    if (!match) return std::unexpected(match.error());
    return match->attribute->read(match->scope);
}

void AttributeTree::write(std::string_view path, std::string_view value,
                          const AttributeDone& done) const {
    const auto match = file_at(path);
    if (!match) return done(std::unexpected(match.error()));
    if (!match->attribute->write) return done(fail(EACCES));
    match->attribute->write(match->scope, value, done);
}

std::vector<std::string> unique_names(std::vector<std::string> names) {
    std::set<std::string> taken;
    for (std::string& name : names) {
        const std::string wanted = name;
        for (int copy = 2; !taken.insert(name).second; ++copy) {
            name = wanted + "#" + std::to_string(copy);
        }
    }
    return names;
}

}  // namespace rnbd
