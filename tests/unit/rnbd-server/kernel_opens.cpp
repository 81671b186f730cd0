// A kernel's client asks once: what it opens may wait for its storage.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "tests/unit/rnbd-server/told_world.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace std::chrono_literals;

namespace {

enum class Portal { ours, kernels };

// A session that came in by such a portal, and an export whose file is not there.
struct Client {
    explicit Client(Portal portal) {
        if (portal == Portal::kernels) {
            world.target.use_kernel_portals({{0, KernelListener{}}});
        }
    }
    ~Client() {
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
                static_cast<Client*>(context)->answer = error.value();
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
    Client kernel(Portal::kernels);
    kernel.ask();
    kernel.pass(300ms);
    CHECK(!kernel.answer);
    kernel.make_file();
    CHECK(kernel.answered() == 0);
}

TEST_CASE("kernel opens: none waits longer than 10 s, each for its own time") {
    Client kernel(Portal::kernels);
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
    Client kernel(Portal::kernels);
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
    Client ours(Portal::ours);
    ours.ask();
    CHECK(ours.answered() == ENOENT);
}

TEST_CASE("kernel opens: a client whose listener has gone stays a kernel's") {
    Client kernel(Portal::kernels);
    Target& target = kernel.world.target;
    target.use_kernel_portals({}, {0});
    target.use_kernel_portals({{1, KernelListener{}}}, {0, 1});
    kernel.ask();
    kernel.pass(300ms);
    CHECK(!kernel.answer);
    kernel.make_file();
    CHECK(kernel.answered() == 0);
}
