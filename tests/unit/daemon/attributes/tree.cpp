#include "daemon/attributes/tree.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <map>

using namespace rnbd;

namespace {

using Names = std::vector<std::string>;

// Colours with shades: an attribute that can be written, one that cannot, and a link to the first
// shade of each colour.
struct Paint {
    std::map<std::string, Names> colours{{"blue", {"sky", "sea"}}, {"red", {"wine"}}};
    std::string written;
    AttributeTree tree;

    Paint() {
        tree.add_variable("{colour}", [this](AttributeScope) {
            Names names;
            for (const auto& [name, shades] : colours) names.push_back(name);
            return names;
        });
        tree.add_variable("{shade}", [this](AttributeScope outer) { return colours.at(outer[0]); });
        tree.add(
            {.pattern = "paint/{colour}/shades/{shade}/mix",
             .read = [](AttributeScope scope) -> AttributeValue {
                 return scope[0] + "-" + scope[1] + "\n";
             },
             .write =
                 [this](AttributeScope scope, std::string_view value, const AttributeDone& done) {
                     if (value != "1") {
                         return done(std::unexpected(AttributeError{EINVAL, "expected 1"}));
                     }
                     written = scope[1];
                     done({});
                 }});
        tree.add({.pattern = "paint/{colour}/count",
                  .read = [this](AttributeScope scope) -> AttributeValue {
                      return std::to_string(colours.at(scope[0]).size()) + "\n";
                  }});
        tree.add({.pattern = "first/{colour}",
                  .kind = Attribute::Kind::link,
                  .read = [this](AttributeScope scope) -> AttributeValue {
                      const auto& shades = colours.at(scope[0]);
                      if (shades.empty()) return std::unexpected(AttributeError{ENOENT, ""});
                      return "../paint/" + scope[0] + "/shades/" + shades.front();
                  }});
        tree.add({.pattern = "loop/a",
                  .kind = Attribute::Kind::link,
                  .read = [](AttributeScope) -> AttributeValue { return "../loop/a"; }});
    }

    Names names(std::string_view path,
                AttributeTree::Depth depth = AttributeTree::Depth::children) {
        Names found;
        const auto nodes = tree.list(path, depth);
        REQUIRE(nodes);
        for (const auto& node : *nodes) found.push_back(node.path);
        return found;
    }

    int write(std::string_view path, std::string_view value) {
        int result = -1;
        tree.write(path, value,
                   [&](const AttributeWritten& done) { result = done ? 0 : done.error().number; });
        return result;
    }

    int error(std::string_view path) {
        const auto value = tree.read(path);
        return value ? 0 : value.error().number;
    }
};

}  // namespace

TEST_CASE("attribute tree: patterns stand for what their variables list now") {
    Paint paint;
    CHECK(paint.tree.read("/sys/paint/blue/count").value() == "2\n");
    CHECK(paint.tree.read("paint/blue/shades/sea/mix").value() == "blue-sea\n");
    paint.colours["blue"].pop_back();
    CHECK(paint.error("paint/blue/shades/sea/mix") == ENOENT);
    CHECK(paint.tree.read("/paint//blue/count/").value() == "1\n");
    CHECK(paint.error("paint/green/count") == ENOENT);
    CHECK(paint.error("paint/{colour}/count") == ENOENT);
    CHECK(paint.error("paint/blue") == EISDIR);
    CHECK(paint.error("") == EISDIR);
    CHECK(paint.error("paint/blue/count/more") == ENOTDIR);
}

TEST_CASE("attribute tree: directories list what is there") {
    Paint paint;
    CHECK(paint.names("/sys") == Names{"first", "loop", "paint"});
    CHECK(paint.names("paint") == Names{"paint/blue", "paint/red"});
    CHECK(paint.names("paint/red") == Names{"paint/red/count", "paint/red/shades"});
    CHECK(paint.names("paint/red", AttributeTree::Depth::all) ==
          Names{"paint/red/count", "paint/red/shades", "paint/red/shades/wine",
                "paint/red/shades/wine/mix"});
    paint.colours.clear();
    CHECK(paint.names("paint").empty());
    CHECK(paint.tree.find("paint")->kind == AttributeNode::Kind::directory);
    CHECK_FALSE(paint.tree.list("paint/red", AttributeTree::Depth::children));
}

TEST_CASE("attribute tree: modes and kinds") {
    Paint paint;
    CHECK(paint.tree.find("paint/red/count")->mode == 0444);
    CHECK(paint.tree.find("paint/red/shades/wine/mix")->mode == 0644);
    CHECK(paint.tree.find("paint/red")->mode == 0755);
    CHECK(paint.tree.find("paint/red")->name() == "red");
    const auto link = paint.tree.find("first/blue");
    REQUIRE(link);
    CHECK(link->kind == AttributeNode::Kind::link);
    CHECK(link->target == "../paint/blue/shades/sky");
}

TEST_CASE("attribute tree: links are followed on the way, one that leads nowhere is not there") {
    Paint paint;
    CHECK(paint.tree.read("first/blue/mix").value() == "blue-sky\n");
    CHECK(paint.names("first/red") == Names{"paint/red/shades/wine/mix"});
    CHECK(paint.error("first/blue") == EISDIR);
    CHECK(paint.error("loop/a/x") == ELOOP);
    paint.colours["red"].clear();
    CHECK(paint.names("first") == Names{"first/blue"});
    CHECK_FALSE(paint.tree.find("first/red"));
}

TEST_CASE("attribute tree: writes") {
    Paint paint;
    CHECK(paint.write("paint/red/shades/wine/mix", "1") == 0);
    CHECK(paint.written == "wine");
    CHECK(paint.write("paint/red/shades/wine/mix", "2") == EINVAL);
    CHECK(paint.write("paint/red/count", "1") == EACCES);
    CHECK(paint.write("paint/red", "1") == EISDIR);
    CHECK(paint.write("paint/none/count", "1") == ENOENT);
}

TEST_CASE("attribute tree: a name that is taken gets a number") {
    CHECK(unique_names({"a", "b", "a", "a"}) == Names{"a", "b", "a#2", "a#3"});
    CHECK(unique_names({"a", "a#2", "a"}) == Names{"a", "a#2", "a#3"});
}

TEST_CASE("attribute tree: a list of all asks once for what each directory has") {
    constexpr int things = 100;
    int asked = 0;
    int open = 0;
    int lists = 0;
    AttributeTree tree;
    tree.add_variable("{thing}", [&](AttributeScope) {
        ++asked;
        Names names;
        for (int i = 0; i < things; ++i) names.push_back("thing" + std::to_string(i));
        return names;
    });
    tree.add_variable("{part}", [&](AttributeScope) {
        ++asked;
        CHECK(open == 1);
        return Names{"a", "b"};
    });
    for (const char* name : {"size", "colour"}) {
        tree.add({.pattern = std::string("all/{thing}/parts/{part}/") + name,
                  .read = [](AttributeScope) -> AttributeValue { return "\n"; }});
    }
    tree.around_list(
        [&] {
            ++open;
            ++lists;
        },
        [&] { --open; });
    const auto nodes = tree.list("", AttributeTree::Depth::all);
    REQUIRE(nodes);
    // "all", and of each thing itself, "parts", and two parts with two files.
    CHECK(nodes->size() == 1 + things * (2 + 2 * 3));
    CHECK(asked <= 2 + things);
    CHECK(!tree.list("nowhere", AttributeTree::Depth::all));
    CHECK(lists == 2);
    CHECK(open == 0);
}
