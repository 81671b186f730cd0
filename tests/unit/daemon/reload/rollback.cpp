#include "daemon/reload/rollback.h"

#include <catch2/catch.hpp>

using namespace rnbd;
using Kind = ConfigChange::Kind;

namespace {

struct Thing {
    std::string name;
    int value = 0;
    bool operator==(const Thing&) const = default;
};
using Things = std::vector<Thing>;

ConfigKeys keys_of(const Thing& now, const Thing& then, const Thing*) {
    ConfigKeys keys;
    if (now.value != then.value) keys.replace.emplace_back("value");
    return keys;
}

std::vector<ConfigChange> compared(const Things& running, const Things& before,
                                   const Things& wanted) {
    std::vector<ConfigChange> changes;
    compare_objects(
        "export", running, before, wanted, [](const Thing& one) { return one.name; }, keys_of,
        changes);
    return changes;
}

struct Case {
    Things was, wanted, now;
    std::string failed{};  // one whose change failed
    std::vector<std::string> kept{};

    Things back() {
        auto changes = compared(was, was, wanted);
        for (ConfigChange& change : changes) {
            if (change.name == failed) change.failure = "no room";
        }
        const Rollback rollback(changes, compared(now, wanted, wanted));
        kept = rollback.kept();
        return rollback.objects(
            "export", now, was, [](const Thing& one) { return one.name; },
            [](const Thing&, const Thing& former) { return former; });
    }
};

}  // namespace

TEST_CASE("rollback: what the plan added goes, what it removed and replaced comes") {
    Case one{.was = {{"a", 1}, {"b", 1}, {"c", 1}},
             .wanted = {{"a", 1}, {"b", 2}, {"d", 1}},
             .now = {{"a", 1}, {"b", 2}, {"d", 1}}};
    CHECK(one.back() == one.was);
    CHECK(one.kept.empty());
}

TEST_CASE("rollback: what the plan left alone is as it is now") {
    Case one{
        .was = {{"a", 1}, {"b", 1}}, .wanted = {{"a", 1}, {"b", 1}}, .now = {{"a", 2}, {"c", 1}}};
    CHECK(one.back() == one.now);
    CHECK(one.kept.empty());
}

TEST_CASE("rollback: what was changed since stays, and is told of") {
    Case one{.was = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}},
             .wanted = {{"a", 2}, {"b", 2}, {"c", 2}, {"e", 1}},
             .now = {{"a", 3}, {"c", 2}, {"d", 4}, {"e", 5}}};
    CHECK(one.back() == Things{{"a", 3}, {"c", 1}, {"d", 4}, {"e", 5}});
    CHECK(one.kept == std::vector<std::string>{"export a", "export b", "export d", "export e"});
}

TEST_CASE("rollback: what the plan lost itself comes back, what it could not change stays") {
    Case lost{.was = {{"a", 1}}, .wanted = {{"a", 2}}, .now = {}, .failed = "a"};
    CHECK(lost.back() == lost.was);
    CHECK(lost.kept.empty());
    Case stayed{.was = {{"a", 1}}, .wanted = {{"a", 2}}, .now = {{"a", 1}}, .failed = "a"};
    CHECK(stayed.back() == stayed.was);
    CHECK(stayed.kept.empty());
    Case never{.was = {}, .wanted = {{"a", 2}}, .now = {{"a", 3}}, .failed = "a"};
    CHECK(never.back() == never.now);
}
