// Exports that are resized while a session uses them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "tests/unit/rnbd-server/export_fixtures.h"

using namespace rnbd;
using namespace rnbd::told;

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

TEST_CASE("exports: a shrink waits for what was under way, not for what goes on coming") {
    const TemporaryFolder folder;
    const std::string gate = folder.file("gate");
    auto slow = memory("vol", {writes("host-a")});
    slow.storage.delay = DelayOptions{.write = 300ms, .gate = gate};
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

TEST_CASE("exports: who opened one during a shrink hears that its storage has refused that") {
    const TemporaryFolder folder;
    const std::string gate = folder.file("gate");
    std::ofstream(gate) << "shut";
    const int file = ::memfd_create("image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(file >= 0);
    REQUIRE(::ftruncate(file, 1 << 20) == 0);
    auto slow = in_file("vol", "/proc/self/fd/" + std::to_string(file),
                        {writes("host-a"), {.session = "host-b", .access = AccessMode::read_only}});
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
    const TemporaryFolder folder;
    const std::string path = folder.file("image");
    World world({in_file("vol", path)});
    Volume& volume = ready(world, "vol");
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

TEST_CASE("exports: what is not resized at all is not told of a shrink") {
    const TemporaryFolder folder;
    const std::string path = folder.file("image");
    std::ofstream(path).close();
    REQUIRE(::truncate(path.c_str(), 1 << 20) == 0);
    ServerConfig::Export reads = in_file("vol", path);
    reads.storage.use = StorageOptions::Use::read_only;
    World world({reads});
    Volume& volume = ready(world, "vol");
    for (const auto shrink : {Volume::Shrink::refused, Volume::Shrink::cut}) {
        std::expected<std::uint64_t, StorageError> result;
        volume.resize(512 << 10, shrink, [&](const auto& its) { result = its; });
        REQUIRE(!result);
        CHECK(result.error().text.find("the export is read_only") != std::string::npos);
        CHECK(result.error().text.find("shrink") == std::string::npos);
    }
}
