// Exports that are added and removed, and the end of their server.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "tests/unit/rnbd-server/export_fixtures.h"

using namespace rnbd;
using namespace rnbd::told;

TEST_CASE("exports: one NBD server's export is not another one's, too") {
    using enum StorageOptions::Use;
    const auto used = [](std::string name, std::string uri, StorageOptions::Use use) {
        auto made = on_nbd(std::move(name), std::move(uri));
        made.storage.use = use;
        return made;
    };
    World world({used("one", "nbd+unix:///?socket=/nowhere", read_write),
                 used("ro", "nbd+unix:///ro?socket=/nowhere", read_only)});
    const auto twice =
        world.target.add_export(used("two", "nbd+unix:///?socket=/nowhere", read_write));
    REQUIRE(!twice);
    CHECK(twice.error().code == ControlError::exists);
    CHECK(twice.error().message.find("one") != std::string::npos);
    CHECK(world.target.add_export(used("other", "nbd+unix:///b?socket=/nowhere", read_write)));
    CHECK(world.target.add_export(used("both", "nbd+unix:///ro?socket=/nowhere", read_only)));
}

TEST_CASE("exports: none goes while it has its last flush") {
    auto slow = memory("vol", {});
    slow.storage.delay.emplace().flush = 100ms;
    World world({slow});
    bool flushed = false;
    world.target.flush_all([&] { flushed = true; });
    const auto how = GENERATE(Target::Removal::if_unused, Target::Removal::by_force);
    const auto removed =
        world.target.remove_export("vol", how, [](std::error_code) { FAIL("it is removed"); });
    REQUIRE(!removed);
    CHECK(removed.error().code == ControlError::stopping);
    world.run_until([&] { return flushed; });
}

TEST_CASE("exports: an addition waits until those are gone that have its name and its path") {
    const TemporaryFolder folder;
    const std::string path = folder.file("image"), gate = folder.file("gate");
    auto slow = in_file("vol", path);
    slow.storage.delay = DelayOptions{.gate = gate, .gate_operations = DelayOptions::Gate::all};
    auto heir = slow;
    heir.name = "heir";
    World world({slow});
    Target& target = world.target;
    std::vector<std::string> told;
    const auto tells = [&](const std::string& what) {
        return [&told, what](const std::expected<void, ControlFailure>& added) {
            told.push_back(what + (added ? "" : " not: " + added.error().message));
        };
    };
    const auto removes = [&](const std::string& name) {
        return [&told, name](std::error_code) { told.push_back(name + " is gone"); };
    };
    target.add_export_when_free(slow, tells("vol"));
    REQUIRE(told.size() == 1);
    CHECK(told[0] == "vol not: an export vol is there already");
    told.clear();

    std::ofstream(gate) << "shut";
    REQUIRE(target.remove_export("vol", Target::Removal::if_unused, removes("vol")));
    for (const auto& one : {slow, heir}) {
        const auto added = target.add_export(one);
        REQUIRE(!added);
        CHECK(added.error().message.ends_with("is still being removed"));
    }
    std::vector<std::string> expected;
    SECTION("one after the other") {
        target.add_export_when_free(slow, tells("vol"));
        target.add_export_when_free(heir, tells("heir"));
        CHECK(target.coming().size() == 2);
        CHECK(target.find("vol") == nullptr);
        // What it is to be may change, and is not to be added twice.
        slow.storage.size_bytes = 2 << 20;
        target.change_coming(slow);
        target.add_export_when_free(slow, tells("again"));
        expected = {"again not: export vol is about to be added already", "vol",
                    "heir not: export vol has " + path +
                        " already; only exports that are both read_only may share it",
                    "vol is gone"};
    }
    SECTION("but not if it is removed before") {
        target.add_export_when_free(slow, tells("vol"));
        target.add_export_when_free(heir, tells("heir"));
        for (const char* const name : {"heir", "vol"}) {
            REQUIRE(target.remove_export(name, Target::Removal::if_unused, removes(name)));
        }
        CHECK(target.coming().empty());
        world.run_until([&] { return told.size() == 3; });
        const std::string why = " not: it was removed before it could be added";
        expected = {"heir" + why, "vol" + why, "heir is gone", "vol is gone", "vol is gone"};
    }
    SECTION("nor if the server ends before") {
        target.add_export_when_free(slow, tells("vol"));
        target.flush_all([] {});
        expected = {"vol is gone"};
    }
    ::unlink(gate.c_str());
    world.run_until([&] { return told.size() == expected.size(); });
    CHECK(told == expected);
    const Volume* const volume = target.find("vol");
    CHECK((volume != nullptr) == (expected.size() == 4));
    if (volume != nullptr) CHECK(volume->config().storage.size_bytes == 2 << 20);
}

TEST_CASE("exports: one that goes before it could be written to is as flushed as before") {
    const TemporaryFolder folder;
    const std::string path = folder.file("epochs");
    const std::string fresh = path + ".new";
    auto reactor = rtrs::Reactor::create().value();
    DeferredCompletions deferred{*reactor};
    WriterFile writers{*reactor, ""};
    MediumClaims claims;
    const ServerConfig::Export config = in_file("vol", folder.file("image"));
    const auto until = [&](auto done) {
        for (int i = 0; i < 2000 && !done(); ++i) reactor->run_once(5ms);
        REQUIRE(done());
    };
    const auto noted = [&] {
        std::ifstream file(path);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    bool is_flushed = false;
    const auto flush = [&](Volume& volume) {
        is_flushed = false;
        volume.flush([&](std::error_code error) { is_flushed = !error; });
        until([&] { return is_flushed; });
    };
    const auto life = [&](bool disk_hangs, auto with) {
        EpochFile epochs(*reactor, path);
        REQUIRE(!epochs.load());
        REQUIRE(!epochs.begin());
        if (disk_hangs) REQUIRE(::mkfifo(fresh.c_str(), 0600) == 0);
        Volume volume(
            *reactor,
            {.deferred = deferred, .claims = claims, .epochs = epochs, .writers = writers}, config);
        with(volume);
        flush(volume);
        REQUIRE(!epochs.save());
        CHECK(noted().find("flushed") != std::string::npos);
    };
    life(false,
         [&](Volume& volume) { until([&] { return volume.state() == Volume::State::ready; }); });
    int reader = -1;
    life(true, [&](Volume& volume) {
        until([&] { return volume.reason().ends_with("epochs is being written"); });
        CHECK(volume.state() == Volume::State::waiting);
        // The disk answers again.
        reader = ::open(fresh.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        ::unlink(fresh.c_str());
    });
    if (reader >= 0) ::close(reader);
}
