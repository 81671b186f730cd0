#include "daemon/attributes/table.h"

#include <catch2/catch.hpp>
#include <map>
#include <optional>

using namespace rnbd;

namespace {

// Jars by name, with what they hold.
struct Shelf {
    std::map<std::string, int> jars{{"salt", 3}, {"tea", 5}};
    AttributeTree tree;

    Shelf() {
        tree.add_variable("{jar}", [this](AttributeScope) {
            std::vector<std::string> names;
            for (const auto& [name, spoons] : jars) names.push_back(name);
            return names;
        });
        const attribute_table::Lines lines(tree, folder,
                                           [this](AttributeScope scope) { return jar(scope); });
        lines.add("spoons", [](int spoons) { return std::to_string(spoons); }, "number", "remark");
        lines.add("word", [](int) { return "jar"; }, "word", "");
        tree.add({.pattern = attribute_table::in(folder, "empty"),
                  .read = [](AttributeScope) -> AttributeValue { return ""; },
                  .write = attribute_table::by(this, &Shelf::empty)});
        tree.add({.pattern = attribute_table::in(folder, "empty_later"),
                  .read = [](AttributeScope) -> AttributeValue { return ""; },
                  .write = attribute_table::by(this, &Shelf::empty_later)});
    }
    std::expected<int, AttributeError> jar(AttributeScope scope) const {
        const auto found = jars.find(scope[0]);
        if (found == jars.end()) return attribute_table::gone();
        return found->second;
    }
    AttributeWritten empty(AttributeScope scope, std::string_view value) {
        if (!attribute_table::is_one(value)) return attribute_table::expected_one();
        jars.at(scope[0]) = 0;
        return {};
    }
    void empty_later(AttributeScope, std::string_view, const AttributeDone& done) { later = done; }
    // What the write has said; none: nothing yet.
    std::optional<AttributeWritten> write(std::string_view path, std::string_view value) {
        std::optional<AttributeWritten> said;
        tree.write(path, value, [&](const AttributeWritten& written) { said = written; });
        return said;
    }

    static constexpr std::string_view folder = "shelf/{jar}/";
    AttributeDone later;
};

}  // namespace

TEST_CASE("attribute table: lines are read of the object that is there now") {
    Shelf shelf;
    CHECK(shelf.tree.read("shelf/tea/spoons").value() == "5\n");
    CHECK(shelf.tree.read("shelf/salt/word").value() == "jar\n");
    shelf.jars["tea"] = 4;
    CHECK(shelf.tree.read("shelf/tea/spoons").value() == "4\n");
    const Attribute& spoons = shelf.tree.attributes().front();
    CHECK(spoons.pattern == "shelf/{jar}/spoons");
    CHECK(spoons.read_format == "number");
    CHECK(spoons.remark == "remark");
    CHECK(!spoons.write);
    const std::vector<std::string> scope{"sugar"};
    CHECK(spoons.read(scope).error().number == ENODEV);
}

TEST_CASE("attribute table: a member function writes, now or later") {
    Shelf shelf;
    CHECK(shelf.write("shelf/tea/empty", "0")->error().number == EINVAL);
    CHECK(shelf.write("shelf/tea/empty", "1\n")->has_value());
    CHECK(shelf.jars["tea"] == 0);
    CHECK(!shelf.write("shelf/tea/empty_later", "1"));
    CHECK(shelf.later);
}

TEST_CASE("attribute table: an item is found by the name at its place") {
    const std::vector<std::string> names{"a", "b", "a#2"};
    CHECK(attribute_table::item_named(names, "a#2", std::vector{1, 2, 3}).value() == 3);
    CHECK(attribute_table::item_named(names, "c", std::vector{1, 2, 3}).error().number == ENODEV);
}
