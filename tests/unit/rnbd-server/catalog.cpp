// What sessions hear when an export's rules change: to each what it means to it.
#include "tests/unit/rnbd-server/told_world.h"

using namespace rnbd;
using namespace rnbd::told;
using News = std::vector<std::string>;

namespace {

const ServerConfig::Allow reads{.session = "host-a", .access = AccessMode::read_only};
const ServerConfig::Allow writes{.session = "host-a", .access = AccessMode::read_write};
const ServerConfig::Allow other{.session = "host-b", .access = AccessMode::read_write};

}  // namespace

TEST_CASE("catalog: who may open an export is told when it changes") {
    World world({memory("vol", {writes}), memory("theirs", {other})});
    const auto allow = [&](const char* name, std::vector<ServerConfig::Allow> rules) {
        world.target.set_allow(*world.target.find(name), std::move(rules));
    };
    const auto heard = [&](std::size_t count) {
        world.run_until([&] { return world.news.size() >= count; });
        return std::exchange(world.news, {});
    };
    allow("vol", {reads});
    CHECK(heard(1) == News{"access vol"});
    // Nothing for this session.
    allow("vol", {reads, other});
    allow("theirs", {other, reads});
    CHECK(heard(1) == News{"added theirs"});
    allow("vol", {other});
    CHECK(heard(1) == News{"removed vol"});
    CHECK_FALSE(world.session->catalog().entries().contains("vol"));
    allow("vol", {writes});
    CHECK(heard(1) == News{"added vol rw"});
    CHECK(world.session->catalog().entries().size() == 2);
}

TEST_CASE("catalog: an export that was made anew with other blocks is told") {
    World world({memory("vol", {writes})});
    const auto made_anew = [&](std::uint16_t block_bytes) {
        REQUIRE(
            world.target.remove_export("vol", Target::Removal::if_unused, [](std::error_code) {}));
        auto anew = memory("vol", {writes});
        anew.storage.logical_block_bytes = block_bytes;
        world.target.add_export_when_free(std::move(anew), [](const auto& added) { CHECK(added); });
        const auto known = [&] { return world.session->catalog().entries().find("vol"); };
        world.run_until([&] {
            return known() != world.session->catalog().entries().end() &&
                   known()->second.block_bytes == block_bytes;
        });
    };
    made_anew(4096);
    made_anew(512);
}

TEST_CASE("catalog: draining and its end are told once") {
    World world({memory("vol", {writes})});
    const auto set = [&](Target::Draining draining) {
        world.target.set_draining(draining);
        world.target.set_draining(draining);
    };
    set(Target::Draining::on);
    set(Target::Draining::off);
    world.run_until([&] { return world.news.size() >= 2; });
    CHECK(world.news == News{"draining ", "accepting "});
    CHECK(world.session->catalog().intent() == ServerIntent::serve);
}

TEST_CASE("catalog: many requests of a session are answered one a turn, with one look at most") {
    constexpr int count = 50;
    int answered = 0;
    World world({memory("vol", {writes}), memory("theirs", {other})});
    // Of what the world's beginning has changed.
    world.reactor->run_once(std::chrono::milliseconds(0));
    const std::uint64_t looks = world.target.catalog().looks();
    for (int i = 0; i < count; ++i) {
        world.session->catalog().ask([&](std::error_code error, const auto& entries) {
            CHECK(!error);
            CHECK(entries.size() == 1);
            ++answered;
        });
    }
    world.run_until([&, before = 0]() mutable {
        REQUIRE(answered <= std::exchange(before, answered) + 1);
        return answered == count;
    });
    CHECK(world.target.catalog().looks() == looks);
    // A change is looked at before the answer is made.
    world.target.set_allow(*world.target.find("theirs"), {reads});
    world.session->catalog().ask([&](std::error_code error, const auto& entries) {
        CHECK(!error);
        CHECK(entries.size() == 2);
        ++answered;
    });
    world.run_until([&] { return answered == count + 1; });
    CHECK(world.news == News{"added theirs"});
    CHECK(world.target.catalog().looks() == looks + 1);
}

TEST_CASE("catalog: more exports than a client takes in are not sent") {
    const auto null = [](std::uint32_t number) {
        ServerConfig::Export made = memory("null-" + std::to_string(number), {writes});
        made.storage.kind = StorageOptions::Kind::null;
        return made;
    };
    std::vector<ServerConfig::Export> exports;
    for (std::uint32_t i = 0; i < catalog_entries_max; ++i) exports.push_back(null(i));
    // The question that is not answered fails with the session, at the world's end.
    bool too_many_answered = false;
    bool answered = false;
    World world(exports);
    RemoteCatalog& seen = world.session->catalog();
    REQUIRE(seen.entries().size() == catalog_entries_max);
    // One more is told as an event, at which the client asks for all; they are too many for a
    // picture, and a question is not answered.
    REQUIRE(world.target.add_export(null(catalog_entries_max)));
    seen.ask([&](std::error_code error, const auto&) { too_many_answered = !error; });
    const auto ask_again = [&] {
        seen.ask([&](std::error_code error, const auto& entries) {
            CHECK(!error);
            CHECK(entries.size() == catalog_entries_max);
            answered = true;
        });
    };
    const std::uint64_t looks = world.target.catalog().looks();
    world.run_until([&] { return world.target.catalog().looks() > looks; });
    for (int i = 0; i < 50; ++i) world.reactor->run_once(std::chrono::milliseconds(10));
    // One fewer, and all is as before.
    world.target.set_allow(*world.target.find("null-1"), {other});
    ask_again();
    const std::string last = "null-" + std::to_string(catalog_entries_max);
    world.run_until([&] { return answered && seen.entries().contains(last); });
    CHECK_FALSE(too_many_answered);
    CHECK(seen.entries().size() == catalog_entries_max);
    CHECK_FALSE(seen.entries().contains("null-1"));
    CHECK(seen.complaint().empty());
}
