// User messages of a session when a path is lost whose server has no sequence numbers: with which
// permits the next ones come.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/sim/session_end.h"
#include "tests/sim/session_world.h"

using namespace simtest;

namespace {

// A session with two paths to a server without sequences, and user messages that wait there until
// the test answers them.
struct Asking {
    explicit Asking(std::uint64_t seed)
        : scene([&] {
              SceneOptions options = quick_options(seed);
              options.addresses = 2;
              options.server.protection = Protection::fenced;
              return options;
          }()) {
        scene.start_server();
        scene.start_client();
        REQUIRE(scene.ready());
        REQUIRE(scene.run_until([&] { return both_paths(); }));
    }
    ClientSession& session() { return scene.client->session; }
    ClientSessionStatus status() { return session().status(); }
    std::vector<ServerOp*>& waiting() { return scene.server->waiting; }
    bool both_paths() {
        return std::ranges::all_of(status().paths, [](const PathStatus& path) {
            return path.state == PathState::connected;
        });
    }
    void ask() {
        const std::byte message[16] = {};
        session().submit_user(
            Direction::read, message, 8,
            [](void* context, std::error_code error, Bytes) {
                auto& self = *static_cast<Asking*>(context);
                ++(error ? self.lost : self.ok);
            },
            this);
    }
    // So many have come to the server so far.
    void come(std::size_t count) {
        REQUIRE(scene.run_until([&] { return waiting().size() == count; }));
    }
    void answer(std::size_t index) { waiting()[index]->respond({}, 8); }
    // The path that carries what is asked is lost in silence.
    void lose(int path) {
        const int before = lost;
        const std::string net = "10.0." + std::to_string(path);
        scene.world.network().cut(net + ".1", net + ".2");
        REQUIRE(scene.run_until([&] { return lost == before + 1; }, 40s));
    }
    void heal() {
        scene.world.network().heal_all();
        REQUIRE(scene.run_until([&] { return both_paths(); }));
    }
    void take_all() {
        while (auto permit = session().try_take()) taken.push_back(std::move(*permit));
    }
    void end() {
        taken.clear();
        heal();
        work_and_end(scene, 15, 100);
    }

    Scene scene;
    int ok = 0, lost = 0;
    std::vector<Permit> taken;
};

}  // namespace

// Its server may read the one before in its chunk until it has answered it.
TEST_CASE("without sequences a user message does not come with the permit of one that was lost") {
    Asking asking(30);
    const bool all_in_use = GENERATE(false, true);
    CAPTURE(all_in_use);
    if (all_in_use) asking.take_all();
    asking.ask();
    // Those behind it have not run, and are not told that they may have.
    asking.ask();
    asking.come(1);
    asking.lose(0);
    CHECK(asking.status().unsettled == 1);
    if (all_in_use) {
        asking.scene.world.run_for(100us);
        CHECK(asking.waiting().size() == 1);
        asking.taken.pop_back();
    }
    const PermitId kept = asking.waiting()[0]->permit();
    asking.come(2);
    const PermitId on_loan = asking.waiting()[1]->permit();
    CHECK(on_loan != kept);
    asking.answer(1);
    REQUIRE(asking.scene.run_until([&] { return asking.ok == 1; }));
    asking.ask();
    asking.come(3);
    CHECK(asking.waiting()[2]->permit() == on_loan);
    // The server has finished with the lost path once the first is answered, for nobody.
    CHECK(asking.status().unsettled == 1);
    asking.answer(0);
    REQUIRE(asking.scene.run_until([&] { return asking.status().unsettled == 0; }));
    asking.answer(2);
    asking.ask();
    asking.come(4);
    CHECK(asking.waiting()[3]->permit() == kept);
    asking.answer(3);
    REQUIRE(asking.scene.run_until([&] { return asking.ok == 3; }));
    CHECK(asking.lost == 1);
    asking.end();
}

TEST_CASE("without sequences a user message that has its own permit again needs no loan") {
    Asking asking(31);
    asking.take_all();
    REQUIRE(asking.taken.size() == 15);
    asking.ask();
    asking.come(1);
    asking.lose(0);
    const PermitId kept = asking.waiting()[0]->permit();
    asking.ask();  // waits for a permit
    asking.scene.world.run_for(100us);
    asking.answer(0);
    REQUIRE(asking.scene.run_until([&] { return asking.status().unsettled == 0; }));
    // In one turn: it leaves with its own, and another one comes home.
    asking.ask();
    asking.taken.pop_back();
    asking.come(2);
    CHECK(asking.waiting()[1]->permit() == kept);
    asking.heal();
    asking.lose(1);
    asking.answer(1);
    asking.come(3);
    asking.answer(2);
    REQUIRE(asking.scene.run_until([&] { return asking.status().unsettled == 0; }));
    // All of them are those of requests, as before.
    asking.take_all();
    CHECK(asking.taken.size() == 15);
    for (const Permit& permit : asking.taken) CHECK(permit.id() < PermitId{15});
    asking.end();
}
