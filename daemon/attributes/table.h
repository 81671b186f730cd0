// The words that both daemons write their attribute tables with (daemon/attributes/tree.h).
//
// Pure. THREAD: any.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <expected>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/attributes/tree.h"
#include "daemon/attributes/values.h"

namespace rnbd::attribute_table {

inline std::unexpected<AttributeError> fail(int number, std::string message = "") {
    return std::unexpected(AttributeError{number, std::move(message)});
}
// What an attribute belongs to has gone since its path was found.
inline std::unexpected<AttributeError> gone() { return fail(ENODEV, "it is gone"); }

inline bool is_one(std::string_view value) noexcept { return attribute_text_is(value, "1"); }
inline std::unexpected<AttributeError> expected_one() { return fail(EINVAL, "expected 1"); }

// folder: ends with '/'.
inline std::string in(std::string_view folder, std::string_view name) {
    return std::string(folder) + std::string(name);
}

// names: those of the items, in their order. ERRORS: ENODEV (none has the name).
template <typename Item>
std::expected<Item, AttributeError> item_named(const std::vector<std::string>& names,
                                               std::string_view name, std::vector<Item> items) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) return gone();
    return std::move(items[static_cast<std::size_t>(found - names.begin())]);
}

// Attribute::write by a member function of owner, which outlives the tree: one that is done when it
// returns, and one that may be done later.
template <typename Owner>
auto by(Owner* owner, AttributeWritten (Owner::*member)(AttributeScope, std::string_view)) {
    return [owner, member](AttributeScope scope, std::string_view value,
                           const AttributeDone& done) { done((owner->*member)(scope, value)); };
}
template <typename Owner>
auto by(Owner* owner,
        void (Owner::*member)(AttributeScope, std::string_view, const AttributeDone&)) {
    return [owner, member](AttributeScope scope, std::string_view value,
                           const AttributeDone& done) { (owner->*member)(scope, value, done); };
}

// Adds files of one line that are only read, all in one folder and about the same object.
//
//   const Lines lines(tree_, path_folder, [this](AttributeScope scope) { return path(scope); });
//   lines.add("state", [](const PathPlace& it) { return it.path.state; }, "`up`, `down`", "");
template <typename Find>
class Lines {
  public:
    // find(scope): the object, as a std::expected with AttributeError.
    Lines(AttributeTree& tree, std::string_view folder, Find find)
        : tree_(tree), folder_(folder), find_(std::move(find)) {}

    // reader(object): the line, without its end.
    template <typename Reader>
    void add(std::string_view name, Reader reader, const std::string& read_format,
             const std::string& remark) const {
        tree_.add({.pattern = in(folder_, name),
                   .read = [find = find_, reader](AttributeScope scope) -> AttributeValue {
                       return read_at(find(scope), [&](const auto& object) {
                           return std::string(reader(object)) + "\n";
                       });
                   },
                   .read_format = read_format,
                   .remark = remark});
    }

  private:
    AttributeTree& tree_;
    std::string_view folder_;
    Find find_;
};

}  // namespace rnbd::attribute_table
