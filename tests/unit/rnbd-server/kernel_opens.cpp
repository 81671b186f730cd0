// A kernel's client asks once: what it opens may wait for its storage, and what was taken from it
// is opened again when it has lost its paths.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "tests/unit/rnbd-server/by_hand.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace std::chrono_literals;

namespace {

// A session of a kernel's client, and an export whose file is not there.
struct Kernel {
    explicit Kernel(bool through_kernel_portal = true) {
        if (through_kernel_portal)
            world.target.use_kernel_portals(
                {{0, KernelListener{.allow = {{.session = "host-a"}}}}});
    }
    ~Kernel() {
        ::unlink(file.c_str());
        ::rmdir(folder.c_str());
    }
    static std::string made_folder() {
        char name[] = "/tmp/rnbd-kernel-opens-XXXXXX";
        REQUIRE(::mkdtemp(name) != nullptr);
        return name;
    }
    static ServerConfig::Export exported(const std::string& path) {
        ServerConfig::Export made;
        made.name = "vol";
        made.storage.path = path;
        made.storage.io = StorageOptions::Io::buffered;
        made.allow = {{.session = "host-a", .access = AccessMode::read_write}};
        return made;
    }
    void make_file() {
        std::ofstream content(file);
        content << std::string(1 << 20, 'x');
    }
    // The errno of the answer.
    void ask(AccessMode access = AccessMode::read_write) {
        std::array<std::byte, OpenMessage::wire_bytes> message{};
        OpenMessage{.access_mode = access, .device_name = "vol"}.emit(message);
        answer.reset();
        world.session->rtrs().submit_user(
            rtrs::Direction::read, message, OpenResponse::size(features_known),
            [](void* context, std::error_code error, rtrs::Bytes) {
                static_cast<Kernel*>(context)->answer = error.value();
            },
            this);
    }
    void pass(rtrs::Duration time) {
        const rtrs::Instant end = world.reactor->now() + time;
        while (world.reactor->now() < end) world.reactor->run_once(end - world.reactor->now());
    }
    int answered() {
        world.run_until([&] { return answer.has_value(); });
        return *answer;
    }

    const std::string folder = made_folder();
    const std::string file = folder + "/vol";
    World world{{exported(file)}};
    std::optional<int> answer;
};

}  // namespace

TEST_CASE("kernel opens: one that comes too early is answered when the storage is there") {
    Kernel kernel;
    kernel.ask();
    kernel.pass(300ms);
    CHECK(!kernel.answer);
    kernel.make_file();
    CHECK(kernel.answered() == 0);
}

TEST_CASE("kernel opens: none waits longer than 10 s, each for its own time") {
    Kernel kernel;
    kernel.ask();
    kernel.pass(5s);
    CHECK(!kernel.answer);
    CHECK(kernel.answered() == ENOENT);
    kernel.ask();
    kernel.pass(300ms);
    CHECK(!kernel.answer);
    kernel.make_file();
    CHECK(kernel.answered() == 0);
}

TEST_CASE("kernel opens: what is refused for another reason, or will not come, is not waited for") {
    Kernel kernel;
    kernel.ask();
    kernel.pass(100ms);
    REQUIRE(!kernel.answer);
    SECTION("the server is drained") {
        kernel.world.target.set_draining(Target::Draining::on);
        CHECK(kernel.answered() == EBUSY);
    }
    SECTION("the server ends") {
        kernel.world.target.end_opens();
        CHECK(kernel.answered() == ENOENT);
        kernel.ask();
        CHECK(kernel.answered() == ENOENT);
    }
    SECTION("the export is removed") {
        REQUIRE(kernel.world.target.remove_export("vol", Target::Removal::if_unused,
                                                  [](std::error_code) {}));
        CHECK(kernel.answered() == ENOENT);
    }
    SECTION("the session may not open it any more") {
        kernel.world.target.set_allow(*kernel.world.target.find("vol"),
                                      {{.session = "host-a", .access = AccessMode::read_only}});
        CHECK(kernel.answered() == EACCES);
    }
}

TEST_CASE("kernel opens: our own clients are told at once, and ask again") {
    Kernel client(false);
    client.ask();
    CHECK(client.answered() == ENOENT);
}

TEST_CASE(
    "kernel opens: who uses what was taken from it loses its paths when that is there again") {
    auto vol = memory("vol", {{.session = "host-a", .access = AccessMode::read_write}});
    vol.storage.uuid = parse_uuid("6ba7b810-9dad-11d1-80b4-00c04fd430c8");
    World world({vol, memory("other", vol.allow)});
    world.target.use_kernel_portals({{0, KernelListener{.allow = {{.session = "host-a"}}}}});
    ByHand hand{.world = world, .answer = {}};
    const std::uint32_t id = hand.open("vol");
    const auto reconnects = [&] { return world.session->rtrs().status().paths.at(0).reconnects; };
    const auto fails_and_stays = [&](std::uint32_t device) {
        CHECK(hand.ask(device, Operation::write) == ENOTCONN);
        CHECK(hand.ask(device, Operation::write) == ENOTCONN);
        CHECK(reconnects() == 0);
    };
    const auto comes_back = [&] {
        hand.send(id, Operation::write, rtrs::Direction::write, 4096);
        world.run_until([&] { return reconnects() == 1; });
        world.session->close();
        world.run_until([&] { return world.session_closed; });
    };
    const auto remove = [&] {
        bool gone = false;
        REQUIRE(world.target.remove_export("vol", Target::Removal::by_force,
                                           [&](std::error_code) { gone = true; }));
        world.run_until([&] { return gone; });
    };
    SECTION("nothing was taken") { fails_and_stays(id + 1); }
    SECTION("it is shut out") {
        REQUIRE(world.target.evict("vol", "host-a", 60s));
        fails_and_stays(id);
        REQUIRE(world.target.evict("vol", "host-a", 0s));
        comes_back();
    }
    SECTION("it has another one open") {
        const std::uint32_t other = hand.open("other");
        remove();
        REQUIRE(world.target.add_export(vol));
        fails_and_stays(id);
        CHECK(hand.ask(other, Operation::write) == 0);
    }
    SECTION("the export is another one") {
        remove();
        fails_and_stays(id);
        auto another = vol;
        another.storage.uuid = parse_uuid("6ba7b811-9dad-11d1-80b4-00c04fd430c8");
        REQUIRE(world.target.add_export(another));
        fails_and_stays(id);
        remove();
        REQUIRE(world.target.add_export(vol));
        comes_back();
    }
}
