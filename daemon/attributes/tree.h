// A tree of attributes like those in the kernel's sysfs: text files that are read and written, in
// directories that come and go with the objects that they describe.
//
// It is a table: each attribute is a pattern for its path, with the functions that read and write
// it. A segment in braces is a variable: it stands for every name that the function of the variable
// lists at the moment. The directories before the first variable of a pattern always exist; those
// after a variable exist while the name is listed.
//
//   tree.add_variable("{session}", [&](AttributeScope) { return names_of_sessions(); });
//   tree.add({.pattern = "class/rtrs-client/{session}/max_reconnect_attempts",
//             .read = [&](AttributeScope scope) { return text_of(scope[0]); }, ...});
//
// OWNER: a daemon. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rnbd {

// Why reading or writing failed: as the kernel says it, and in words for people.
struct AttributeError {
    int number = 0;       // errno, positive
    std::string message;  // one line; empty: there is nothing to add to the meaning of the number
};

// The values of a pattern's variables, in order.
using AttributeScope = std::span<const std::string>;
using AttributeValue = std::expected<std::string, AttributeError>;
using AttributeWritten = std::expected<void, AttributeError>;
// Called once, when the write has taken effect or has failed; that may be later.
using AttributeDone = std::function<void(const AttributeWritten&)>;

// Calls reader with the place; if there is no place, returns the error.
template <typename Place, typename Reader>
AttributeValue read_at(const std::expected<Place, AttributeError>& place, const Reader& reader) {
    if (!place) return std::unexpected(place.error());
    return reader(*place);
}

struct Attribute {
    enum class Kind : std::uint8_t { file, link };

    std::string pattern;
    Kind kind = Kind::file;
    // Returns the text of a file with its newline, or the target of a link. ENOENT for a link: the
    // link does not exist.
    std::function<AttributeValue(AttributeScope)> read;
    // Empty: read-only.
    std::function<void(AttributeScope, std::string_view, AttributeDone)> write{};

    // For docs/reference/attributes.md: what is read, what may be written (empty: nothing), and if
    // the attribute differs from the kernel's, why.
    std::string read_format{}, write_format{}, remark{};

    // Permission bits: 0444, 0644, 0777.
    unsigned mode() const noexcept;
};

struct AttributeNode {
    enum class Kind : std::uint8_t { directory, file, link };
    std::string path;  // "class/rtrs-client/host-a"; empty: the root
    Kind kind = Kind::directory;
    unsigned mode = 0755;
    std::string target;  // of a link

    std::string_view name() const noexcept;
};
const char* to_string(AttributeNode::Kind kind) noexcept;

class AttributeTree {
  public:
    // outer: the values of the variables before this one.
    using Names = std::function<std::vector<std::string>(AttributeScope outer)>;
    void add_variable(std::string name, Names names);
    // ASSUMES: the pattern's variables were added.
    void add(Attribute attribute);
    const std::vector<Attribute>& attributes() const noexcept { return attributes_; }
    // Called before and after each list(). Nothing changes in between, so that what the names stand
    // for can be looked up once, not for each of them.
    void around_list(std::function<void()> before, std::function<void()> after);

    // A path may begin with "/sys/" or "/". Links on the way are followed, one at the end is not.
    // ERRORS: ENOENT, ELOOP.
    std::expected<AttributeNode, AttributeError> find(std::string_view path) const;
    // The nodes below the path in the order of their names; the nodes of a directory follow the
    // directory. A link at the end of the path is followed.
    // ERRORS: as find(), and ENOTDIR.
    enum class Depth : std::uint8_t { children, all };
    std::expected<std::vector<AttributeNode>, AttributeError> list(std::string_view path,
                                                                   Depth depth) const;
    // ERRORS: ENOENT, EISDIR, those of the attribute.
    AttributeValue read(std::string_view path) const;
    // ERRORS: passed to done: ENOENT, EISDIR, EACCES (read-only), those of the attribute.
    void write(std::string_view path, std::string_view value, const AttributeDone& done) const;

  private:
    using Segments = std::vector<std::string>;
    struct Match {
        const Attribute* attribute = nullptr;
        Segments scope;
    };
    struct Walk;

    std::expected<Segments, AttributeError> resolve(std::string_view path) const;
    std::expected<std::vector<AttributeNode>, AttributeError> nodes_below(std::string_view path,
                                                                          Depth depth) const;
    void collect(Walk& walk, const Segments& folder, Depth depth,
                 std::vector<AttributeNode>& into) const;
    std::expected<AttributeNode, AttributeError> node_of(const Match& match,
                                                         std::string path) const;
    const Segments& pattern_of(const Match& match) const;
    std::vector<Match> matches(Walk& walk, const Segments& path) const;
    std::expected<Match, AttributeError> file_at(std::string_view path) const;

    std::vector<Attribute> attributes_;
    std::vector<Segments> patterns_;  // of attributes_
    std::map<std::string, Names> variables_;
    std::function<void()> before_list_;
    std::function<void()> after_list_;
};

// Makes names unique: a later name that is taken already gets "#2", "#3" ...
std::vector<std::string> unique_names(std::vector<std::string> names);

}  // namespace rnbd
