// Permits of a client without sequence numbers that are under way on two paths: it has given up one
// of them, and the order of their arrival does not say which
// (rtrs/core/server_session_dispute.cpp).
#include <catch2/catch.hpp>

#include "tests/sim/hostile_town.h"

using namespace simtest;

namespace {

// Two paths of one client. Each of its requests is served until the test ends it.
struct TwoPaths {
    explicit TwoPaths(SceneOptions options = quick_options(3)) : town(with_two_addresses(options)) {
        one = town.opened();
        other = town.raw();
        other->request.session_uuid = one->request.session_uuid;
        other->turn_to(town.scene.address(1));
        REQUIRE(other->open(2, "bad", options.server.queue_depth, options.server.chunk_bytes));
    }
    static SceneOptions with_two_addresses(SceneOptions options) {
        options.addresses = 3;
        options.server.kernel_heartbeat_timeout = 10s;
        return options;
    }
    void send(RawClient& over, std::uint32_t permit) {
        constexpr std::uint32_t user_bytes = 16;
        std::vector<std::byte> bytes(user_bytes + WriteMessage::wire_bytes);
        WriteMessage{.user_bytes = user_bytes}.emit(MutableBytes(bytes).subspan(user_bytes));
        over.write(1, over.chunk(permit), bytes, over.codec.request(permit, user_bytes));
    }
    void run_for(Duration time) { town.scene.world.run_for(time); }
    std::vector<std::uint32_t> served() const {
        std::vector<std::uint32_t> permits;
        for (const ServerOp* op : town.scene.server->waiting)
            permits.push_back(static_cast<std::uint32_t>(op->permit()));
        return permits;
    }
    void answer_all() {
        for (ServerOp* op : std::exchange(town.scene.server->waiting, {})) op->respond({});
    }
    static std::size_t answered(const RawClient& client) {
        return client.connections[1]->received.size();
    }
    void end() {
        answer_all();
        run_for(2s);
        answer_all();
        other->end();
        town.check_peace(std::move(one));
    }

    Town town;
    std::unique_ptr<RawClient> one, other;
};

using Permits = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("a permit that comes back on another path while its chunk's key is being revoked") {
    SceneOptions options = quick_options(GENERATE(range(1u, 9u)));
    options.server.always_invalidate = true;
    // Each arrives before the other's revoke has ended.
    options.sim.revoke = SimOptions::Revoke::pending;
    options.sim.delay_min = 50us;
    options.sim.delay_max = 99us;
    TwoPaths paths(options);
    enum class Answers : std::uint8_t { one, other, neither };
    const auto answers = GENERATE(Answers::one, Answers::other, Answers::neither);
    CAPTURE(answers);
    if (answers == Answers::one) keep_alive(*paths.one);
    if (answers == Answers::other) keep_alive(*paths.other);
    paths.send(*paths.one, 2);
    paths.send(*paths.other, 2);
    paths.run_for(1100ms);
    CHECK(paths.served() == Permits{2});
    CHECK(paths.one->alive() != paths.other->alive());
    if (answers == Answers::one) CHECK(paths.one->alive());
    if (answers == Answers::other) CHECK(paths.other->alive());
    paths.answer_all();
    paths.run_for(1ms);
    CHECK(TwoPaths::answered(paths.one->alive() ? *paths.one : *paths.other) == 1);
    paths.end();
}

TEST_CASE("a permit that comes back on another path while it is served") {
    SceneOptions options = quick_options(GENERATE(range(1u, 5u)));
    options.server.always_invalidate = GENERATE(true, false);
    TwoPaths paths(options);
    paths.send(*paths.one, 2);
    paths.run_for(1ms);
    REQUIRE(paths.served() == Permits{2});
    const auto what_came_beside_it = [&] {
        paths.send(*paths.other, 2);
        paths.send(*paths.other, 3);
        paths.run_for(1ms);
        paths.send(*paths.one, 4);
        paths.run_for(1ms);
    };
    SECTION("the first path is given up: the second attempt runs after the first") {
        keep_alive(*paths.other);
        const bool ends_before_it_is_known = GENERATE(false, true);
        CAPTURE(ends_before_it_is_known);
        if (ends_before_it_is_known) {
            // Nothing of the second attempt is seen yet.
            paths.other->connections[0]->on_receive = nullptr;
            what_came_beside_it();
            paths.answer_all();
            paths.run_for(1ms);
            CHECK(paths.served().empty());
            paths.other->write(0, {}, {}, ImmediateCodec::heartbeat_ack());
            paths.run_for(1ms);
            CHECK(paths.served() == Permits{2, 3});
        } else {
            what_came_beside_it();
            CHECK(paths.served() == Permits{2, 3});
            paths.answer_all();
            CHECK(paths.served() == Permits{2});
        }
        CHECK(!paths.one->alive());
        CHECK(paths.other->alive());
        paths.answer_all();
        paths.run_for(1ms);
        CHECK(TwoPaths::answered(*paths.other) == 2);
    }
    SECTION("the second is given up: nothing that came on it runs") {
        keep_alive(*paths.one);
        what_came_beside_it();
        CHECK(paths.served() == Permits{2});
        paths.run_for(1s);
        CHECK(paths.one->alive());
        CHECK(!paths.other->alive());
        CHECK(paths.served() == Permits{2, 4});
        paths.answer_all();
        paths.run_for(1ms);
        CHECK(TwoPaths::answered(*paths.one) == 2);
    }
    SECTION("neither answers: what came second is the newer one") {
        what_came_beside_it();
        CHECK(paths.served() == Permits{2});
        paths.run_for(1s);
        CHECK(!paths.one->alive());
        CHECK(paths.other->alive());
        CHECK(paths.served() == Permits{2, 3});
    }
    const bool answers = GENERATE(true, false);
    CAPTURE(answers);
    SECTION("the first ends by itself: without an answer the second one is believed") {
        what_came_beside_it();
        paths.one->connections[0]->endpoint->disconnect();
        paths.answer_all();
        paths.run_for(10ms);
        CHECK(paths.served().empty());
        if (answers) paths.other->write(0, {}, {}, ImmediateCodec::heartbeat_ack());
        paths.run_for(answers ? 1ms : 1s);
        CHECK(paths.other->alive());
        CHECK(paths.served() == Permits{2, 3});
    }
    SECTION("the second ends by itself: without an answer the first one is closed") {
        if (answers) keep_alive(*paths.one);
        what_came_beside_it();
        paths.other->connections[0]->endpoint->disconnect();
        paths.run_for(10ms);
        CHECK(paths.served() == (answers ? Permits{2, 4} : Permits{2}));
        paths.run_for(1s);
        CHECK(paths.one->alive() == answers);
        CHECK(paths.served() == (answers ? Permits{2, 4} : Permits{2}));
    }
    SECTION("the first answers, and ends: nothing that came on the second runs") {
        what_came_beside_it();
        paths.one->write(0, {}, {}, ImmediateCodec::heartbeat_ack());
        paths.run_for(1ms);
        paths.one->connections[0]->endpoint->disconnect();
        paths.answer_all();
        paths.run_for(2s);
        CHECK(!paths.other->alive());
        CHECK(paths.served().empty());
    }
    paths.end();
}

// Of one permit the one path is looked at first, of the other permit the other.
TEST_CASE("permits that come on two paths in both orders are one dispute") {
    SceneOptions options = quick_options(GENERATE(range(1u, 9u)));
    options.server.always_invalidate = GENERATE(true, false);
    options.sim.revoke = SimOptions::Revoke::pending;
    TwoPaths paths(options);
    const bool other_lives = GENERATE(true, false);
    CAPTURE(other_lives);
    keep_alive(other_lives ? *paths.other : *paths.one);
    paths.send(*paths.one, 2);
    paths.send(*paths.other, 3);
    paths.run_for(1ms);
    REQUIRE(paths.served().size() == 2);
    paths.send(*paths.other, 2);
    paths.send(*paths.one, 3);
    paths.run_for(1100ms);
    CHECK(paths.other->alive() == other_lives);
    CHECK(paths.one->alive() != other_lives);
    paths.answer_all();
    paths.run_for(1ms);
    // The second attempt of one permit, behind the first on the path that is gone.
    CHECK(paths.served() == Permits{other_lives ? 2u : 3u});
    paths.end();
}

TEST_CASE("the late answer to an earlier question is no sign of life") {
    TwoPaths paths;
    keep_alive(*paths.one);
    auto& asked = paths.other->connections[0]->received;
    const std::size_t before = asked.size();
    REQUIRE(paths.town.scene.run_until([&] { return asked.size() > before; }, 5s));
    paths.send(*paths.one, 2);
    paths.run_for(1ms);
    paths.send(*paths.other, 2);
    paths.run_for(1ms);
    CHECK(asked.size() == before + 2);
    paths.other->write(0, {}, {}, ImmediateCodec::heartbeat_ack());
    paths.run_for(2s);
    CHECK(paths.one->alive());
    CHECK(!paths.other->alive());
    CHECK(paths.served() == Permits{2});
    paths.end();
}

TEST_CASE("requests of a path that comes up meanwhile wait, too") {
    TwoPaths paths;
    paths.send(*paths.one, 2);
    paths.run_for(1ms);
    paths.send(*paths.other, 2);
    auto third = paths.town.raw();
    third->request.session_uuid = paths.one->request.session_uuid;
    third->turn_to(paths.town.scene.address(2));
    const auto& options = paths.town.scene.options.server;
    REQUIRE(third->open(2, "bad", options.queue_depth, options.chunk_bytes));
    paths.send(*third, 5);
    paths.run_for(1ms);
    CHECK(paths.served() == Permits{2});
    paths.other->write(0, {}, {}, ImmediateCodec::heartbeat_ack());
    paths.run_for(1ms);
    CHECK(paths.served() == Permits{2, 5});
    CHECK(!paths.one->alive());
    third->end();
    paths.end();
}
