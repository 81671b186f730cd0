// Exports that come, go and change while a session uses them, and at the server's end.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "tests/unit/rnbd-server/told_world.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace std::chrono_literals;

namespace {

ServerConfig::Export nbd(std::string name, std::string uri, StorageOptions::Use use) {
    ServerConfig::Export made;
    made.name = std::move(name);
    made.storage.kind = StorageOptions::Kind::nbd;
    made.storage.uri = std::move(uri);
    made.storage.use = use;
    return made;
}

// An open volume with writes that end when they can.
struct Writer final : RemoteVolumeHandler {
    Writer(World& its_world, const std::string& name, AccessMode access = AccessMode::read_write)
        : world(its_world), volume(*its_world.session, {.name = name, .access = access}, *this) {
        world.run_until([&] { return volume.state() == VolumeState::open; });
    }
    ~Writer() {
        world.run_until([&] { return under_way == 0; });
        volume.close();
        world.run_until([&] { return closed; });
    }
    void on_volume_changed(RemoteVolume&) override {}
    void on_volume_closed(RemoteVolume&) override { closed = true; }

    void write() {
        auto permit = world.session->rtrs().try_take();
        REQUIRE(permit);
        ++under_way;
        volume.submit(std::move(*permit),
                      {.operation = VolumeOperation::write,
                       .offset = 0,
                       .bytes = 4096,
                       .responded =
                           [](void* context, rtrs::Permit, std::error_code error) {
                               CHECK(!error);
                               --static_cast<Writer*>(context)->under_way;
                           },
                       .context = this});
    }

    World& world;
    int under_way = 0;
    bool closed = false;
    RemoteVolume volume;
};

}  // namespace

TEST_CASE("exports: a shrink waits for what was under way, not for what goes on coming") {
    char folder[] = "/tmp/rnbd-exports-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::string gate = std::string(folder) + "/gate";
    auto slow = memory("vol", {{.session = "host-a", .access = AccessMode::read_write}});
    slow.storage.delay = DelayOptions{.write = 300ms, .gate = gate};
    {
        World world({slow});
        Writer writer(world, "vol");
        Volume& volume = *world.target.find("vol");
        for (const std::uint64_t bytes : {65536u, 8192u}) {
            writer.write();
            world.run_until([&] { return volume.in_flight() == 1; });
            std::optional<std::uint64_t> size;
            volume.resize(bytes, Volume::Shrink::cut, [&](const auto& resized) {
                REQUIRE(resized);
                size = *resized;
            });
            CHECK(!size);
            std::ofstream(gate) << "shut";
            writer.write();
            world.run_until([&] { return writer.under_way == 1; });
            const auto patience = world.reactor->now() + 5s;
            world.run_until([&] { return size || world.reactor->now() > patience; });
            CHECK(writer.under_way == 1);
            CHECK(size == bytes);
            ::unlink(gate.c_str());
            world.run_until([&] { return size && writer.under_way == 0; });
        }
    }
    ::rmdir(folder);
}

namespace {

// A session of another host to the same server, with a volume that only reads.
struct Reader final : RemoteSessionHandler, RemoteVolumeHandler {
    explicit Reader(World& its_world) : world(its_world) {
        const auto address = world.server.listen(*world.tcp, "127.0.0.1:0");
        REQUIRE(address);
        rtrs::ClientSessionOptions options{.name = "host-b", .messages = rtrs::MessageOptions{}};
        options.paths.push_back({world.tcp.get(), "", *address});
        session = std::make_unique<RemoteSession>(
            rtrs::SessionEnvironment{*world.reactor, world.random, world.tracer},
            std::move(options), *this);
        REQUIRE(!session->open());
        world.run_until([&] { return session->catalog().known(); });
    }
    void open(const std::string& name) {
        volume = std::make_unique<RemoteVolume>(
            *session, RemoteVolumeOptions{.name = name, .access = AccessMode::read_only}, *this);
        world.run_until([&] { return volume->state() == VolumeState::open; });
    }
    ~Reader() {
        volume->close();
        world.run_until([&] { return volume_closed; });
        session->close();
        world.run_until([&] { return session_closed; });
    }
    void on_volume_changed(RemoteVolume&) override {}
    void on_volume_closed(RemoteVolume&) override { volume_closed = true; }
    void on_session_closed() override { session_closed = true; }
    void on_catalog_event(const CatalogEvent&) override {}

    World& world;
    bool volume_closed = false;
    bool session_closed = false;
    std::unique_ptr<RemoteSession> session;
    std::unique_ptr<RemoteVolume> volume;
};

}  // namespace

TEST_CASE("exports: who opened one during a shrink hears that its storage has refused that") {
    char folder[] = "/tmp/rnbd-exports-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::string gate = std::string(folder) + "/gate";
    std::ofstream(gate) << "shut";
    const int file = ::memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(file >= 0);
    REQUIRE(::ftruncate(file, 1 << 20) == 0);
    auto slow = memory("vol", {{.session = "host-a", .access = AccessMode::read_write},
                               {.session = "host-b", .access = AccessMode::read_only}});
    slow.storage.kind = StorageOptions::Kind::path;
    slow.storage.path = "/proc/self/fd/" + std::to_string(file);
    slow.storage.delay = DelayOptions{.gate = gate};
    {
        World world({slow});
        Writer writer(world, "vol");
        Volume& volume = *world.target.find("vol");
        // A session that comes has all others hear what is so at the moment.
        const bool comes_meanwhile = GENERATE(false, true);
        std::optional<Reader> reader;
        if (!comes_meanwhile) reader.emplace(world);
        writer.write();
        world.run_until([&] { return volume.in_flight() == 1; });
        std::optional<std::error_code> refused;
        volume.resize(64 << 10, Volume::Shrink::cut, [&](const auto& resized) {
            REQUIRE(!resized);
            refused = resized.error().code;
        });
        // It looked as if that could be done.
        CHECK(!refused);
        REQUIRE(::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        if (!reader) reader.emplace(world);
        reader->open("vol");
        CHECK(reader->volume->geometry().size_bytes == 64 << 10);
        ::unlink(gate.c_str());
        world.run_until([&] { return refused.has_value(); });
        CHECK(refused->value() == EPERM);
        world.run_until([&] { return reader->volume->geometry().size_bytes == 1 << 20; });
        CHECK(writer.volume.geometry().size_bytes == 1 << 20);
    }
    ::close(file);
    ::rmdir(folder);
}

namespace {

// A volume beside a book of writers in a file.
struct Booked {
    explicit Booked(std::vector<ServerConfig::Allow> allow)
        : volume(*reactor,
                 {.deferred = deferred, .claims = claims, .epochs = epochs, .writers = book},
                 memory("vol", std::move(allow))) {
        REQUIRE(!book.load());
        turns([&] { return volume.state() == Volume::State::ready; });
    }
    ~Booked() {
        ::unlink(book.path().c_str());
        ::rmdir(folder.c_str());
    }
    static std::string new_folder() {
        std::string path = "/tmp/rnbd-exports-XXXXXX";
        REQUIRE(::mkdtemp(path.data()) != nullptr);
        return path;
    }
    template <typename Done>
    void turns(Done done) {
        for (int i = 0; i < 2000 && !done(); ++i) reactor->run_once(5ms);
        REQUIRE(done());
    }
    Volume::Open* open(const std::string& session, AccessMode access, Writers::Id writer) {
        const auto made = volume.open(
            {.session = session, .host = "127.0.0.1", .access = access, .writer = writer});
        REQUIRE(made);
        return *made;
    }
    bool is_in_book() const { return book.is_written(volume.in_book()); }

    std::string folder = new_folder();
    std::unique_ptr<rtrs::Reactor> reactor = rtrs::Reactor::create().value();
    DeferredCompletions deferred{*reactor};
    EpochBook epochs{*reactor, ""};
    WriterBook book{*reactor, folder + "/writers"};
    MediumClaims claims;
    Volume volume;
};

}  // namespace

TEST_CASE("exports: where others may write, an open waits until it is in the book, no write does") {
    Booked world({{.session = "host-a", .access = AccessMode::migration},
                  {.session = "host-b", .access = AccessMode::migration}});
    Volume::Open* const first = world.open("host-a", AccessMode::migration, 17);
    CHECK_FALSE(world.is_in_book());
    world.turns([&] { return world.is_in_book(); });
    CHECK(world.volume.may_write(*first));
    Volume::Open* const second = world.open("host-b", AccessMode::migration, 18);
    CHECK_FALSE(world.is_in_book());
    CHECK(world.volume.may_write(*first));
    world.turns([&] { return world.is_in_book(); });
    WriterBook server_after_it(*world.reactor, world.book.path());
    REQUIRE(!server_after_it.load());
    CHECK(server_after_it.of("vol")->knows(17));
    CHECK(server_after_it.of("vol")->knows(18));
    world.volume.close(second);
    world.volume.close(first);
}

// Else a server that is killed and started again lets it in with what it held.
TEST_CASE("exports: a write waits until a former life of its own session is out on disk") {
    Booked world({{.session = "host-a", .access = AccessMode::read_write}});
    Volume::Open* const former = world.open("host-a", AccessMode::read_write, 17);
    CHECK(world.volume.may_write(*former));
    // No other one may write it: there is nobody to be remembered for.
    CHECK(world.is_in_book());
    world.volume.close(former);
    Volume::Open* const next = world.open("host-a", AccessMode::read_write, 18);
    CHECK(world.volume.is_out(17));
    CHECK_FALSE(world.volume.may_write(*next));
    world.turns([&] { return world.volume.may_write(*next); });
    WriterBook server_after_it(*world.reactor, world.book.path());
    REQUIRE(!server_after_it.load());
    CHECK(server_after_it.of("vol")->is_out(17));
    world.volume.close(next);
}

TEST_CASE("exports: one that is opened again in a session has the access that is asked for") {
    World world({memory("vol", {{.session = "host-a", .access = AccessMode::read_write}})});
    const Volume& volume = *world.target.find("vol");
    Writer reader(world, "vol", AccessMode::read_only);
    REQUIRE(volume.opens().size() == 1);
    Writer writer(world, "vol");
    writer.write();
    world.run_until([&] { return writer.under_way == 0; });
    REQUIRE(volume.opens().size() == 1);
    CHECK(volume.opens()[0]->access == AccessMode::read_write);
}

TEST_CASE("exports: what was open when its file vanished keeps nobody out when it is back") {
    char folder[] = "/tmp/rnbd-exports-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::string path = std::string(folder) + "/image";
    const std::string aside = path + ".aside";
    auto file = memory("vol", {{.session = "host-a", .access = AccessMode::read_write},
                               {.session = "host-b", .access = AccessMode::read_write}});
    file.storage.kind = StorageOptions::Kind::path;
    file.storage.path = path;
    {
        World world({file});
        Volume& volume = *world.target.find("vol");
        const auto goes_and_comes = [&] {
            REQUIRE(::rename(path.c_str(), aside.c_str()) == 0);
            world.run_until([&] { return volume.state() == Volume::State::waiting; });
            REQUIRE(::rename(aside.c_str(), path.c_str()) == 0);
            world.run_until([&] { return volume.state() == Volume::State::ready; });
        };
        SECTION("another session") {
            const auto open_as = [&](const std::string& session) {
                return volume.open(
                    {.session = session, .host = "127.0.0.1", .access = AccessMode::read_write});
            };
            world.run_until([&] { return volume.state() == Volume::State::ready; });
            const auto before = open_as("host-a");
            REQUIRE(before);
            goes_and_comes();
            const auto open = open_as("host-b");
            REQUIRE(open);
            volume.close(*open);
            volume.close(*before);
        }
        // A kernel's client has its device for as long as its session lives, and asks for nothing.
        SECTION("a session that never asks again has what is the same, and nothing else") {
            world.run_until([&] { return volume.state() == Volume::State::ready; });
            const auto open = volume.open({.session = "host-a",
                                           .host = "127.0.0.1",
                                           .access = AccessMode::read_write,
                                           .reopens = Volume::Reopens::no});
            REQUIRE(open);
            goes_and_comes();
            CHECK(volume.storage(**open) != nullptr);
            CHECK_FALSE(volume.flush_covers_loss(**open, volume.losses()));
            const auto other = volume.open(
                {.session = "host-b", .host = "127.0.0.1", .access = AccessMode::read_write});
            REQUIRE_FALSE(other);
            CHECK(other.error() == std::errc::operation_not_permitted);
            REQUIRE(::rename(path.c_str(), aside.c_str()) == 0);
            world.run_until([&] { return volume.state() == Volume::State::waiting; });
            std::ofstream(path) << std::string(1 << 20, 'x');
            world.run_until([&] { return volume.state() == Volume::State::ready; });
            CHECK(volume.storage(**open) == nullptr);
            REQUIRE(::rename(aside.c_str(), path.c_str()) == 0);
            world.run_until([&] { return volume.storage(**open) != nullptr; });
            volume.close(*open);
        }
        SECTION("the same session, which asks by itself") {
            Writer before(world, "vol");
            goes_and_comes();
            world.run_until([&] {
                return volume.opens().size() == 1 &&
                       volume.storage(*volume.opens().front()) != nullptr;
            });
            before.write();
            world.run_until([&] { return before.under_way == 0; });
            CHECK(volume.opens().size() == 1);
        }
    }
    ::unlink(path.c_str());
    ::rmdir(folder);
}

TEST_CASE("exports: none is made larger than a configuration may say") {
    auto nothing = memory("vol", {});
    nothing.storage.kind = StorageOptions::Kind::null;
    World world({nothing});
    Volume& volume = *world.target.find("vol");
    const auto resized = [&](std::uint64_t bytes) {
        std::error_code error;
        volume.resize(bytes, Volume::Shrink::refused, [&](const auto& result) {
            if (!result) error = result.error().code;
        });
        return error;
    };
    for (const std::uint64_t bytes : {(1ull << 62) + 512, 1ull << 63, 0 - 512ull}) {
        CHECK(resized(bytes) == std::errc::invalid_argument);
        CHECK(volume.geometry().size_bytes == 1 << 20);
    }
    CHECK(!resized(1ull << 62));
    CHECK(volume.geometry().size_bytes == 1ull << 62);
}

TEST_CASE("exports: what others have cut off does not come back as zeroes by a given size") {
    char folder[] = "/tmp/rnbd-exports-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::string path = std::string(folder) + "/image";
    auto file = memory("vol", {});
    file.storage.kind = StorageOptions::Kind::path;
    file.storage.path = path;
    {
        World world({file});
        Volume& volume = *world.target.find("vol");
        world.run_until([&] { return volume.state() == Volume::State::ready; });
        const auto resized = [&](std::optional<std::uint64_t> bytes, Volume::Shrink shrink) {
            std::expected<std::uint64_t, StorageError> result;
            volume.resize(bytes, shrink, [&](const auto& its) { result = its; });
            return result;
        };
        // At once: nobody has looked at it yet.
        REQUIRE(::truncate(path.c_str(), 512 << 10) == 0);
        for (const std::uint64_t bytes : {2u << 20, 1u << 20, 768u << 10}) {
            const auto refused = resized(bytes, Volume::Shrink::cut);
            REQUIRE(!refused);
            CHECK(refused.error().text.find("made smaller by others: 524288 of the 1048576") !=
                  std::string::npos);
            CHECK(volume.geometry().size_bytes == 1 << 20);
        }
        CHECK(volume.reason().find("made smaller by others") != std::string::npos);
        CHECK(resized(std::nullopt, Volume::Shrink::refused) == 512 << 10);
        CHECK(volume.reason().empty());
        CHECK(resized(2 << 20, Volume::Shrink::refused) == 2 << 20);
    }
    ::unlink(path.c_str());
    ::rmdir(folder);
}

TEST_CASE("exports: one NBD server's export is not another one's, too") {
    World world({nbd("one", "nbd+unix:///?socket=/nowhere", StorageOptions::Use::read_write),
                 nbd("ro", "nbd+unix:///ro?socket=/nowhere", StorageOptions::Use::read_only)});
    const auto twice = world.target.add_export(
        nbd("two", "nbd+unix:///?socket=/nowhere", StorageOptions::Use::read_write));
    REQUIRE(!twice);
    CHECK(twice.error().code == ControlError::exists);
    CHECK(twice.error().message.find("one") != std::string::npos);
    CHECK(world.target.add_export(
        nbd("other", "nbd+unix:///b?socket=/nowhere", StorageOptions::Use::read_write)));
    CHECK(world.target.add_export(
        nbd("both", "nbd+unix:///ro?socket=/nowhere", StorageOptions::Use::read_only)));
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
    char folder[] = "/tmp/rnbd-exports-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    const std::string path = std::string(folder) + "/image", gate = std::string(folder) + "/gate";
    auto slow = memory("vol", {});
    slow.storage.kind = StorageOptions::Kind::path;
    slow.storage.path = path;
    slow.storage.delay = DelayOptions{.gate = gate, .gate_operations = DelayOptions::Gate::all};
    auto heir = slow;
    heir.name = "heir";
    {
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
    ::unlink(path.c_str());
    ::rmdir(folder);
}

TEST_CASE("exports: one that goes before it could be written to is as flushed as before") {
    std::string folder = "/tmp/rnbd-exports-XXXXXX";
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    const std::string path = folder + "/epochs";
    const std::string fresh = path + ".new";
    auto reactor = rtrs::Reactor::create().value();
    DeferredCompletions deferred{*reactor};
    WriterBook writers{*reactor, ""};
    MediumClaims claims;
    ServerConfig::Export config;
    config.name = "vol";
    config.storage.path = folder + "/image";
    config.storage.size_bytes = 1 << 20;
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
        EpochBook epochs(*reactor, path);
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
    for (const char* file : {"/image", "/epochs"}) ::unlink((folder + file).c_str());
    ::rmdir(folder.c_str());
}
