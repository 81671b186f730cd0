// Servers that break the rules: each costs its own path, and a good one is served all the same.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/sim/raw_peer.h"
#include "tests/sim/session_world.h"

using namespace simtest;

namespace {

constexpr std::uint32_t depth = 16;
constexpr std::uint32_t chunk = 8192;

// A client at a bad server; then the bad server goes and a good one comes.
struct Trap {
    Trap()
        : scene(quick_options(9)),
          bad(std::make_unique<RawServer>(scene.world, scene.server_host)) {
        bad->response = ConnectResponseMessage::accept({.queue_depth = depth,
                                                        .chunk_bytes = chunk,
                                                        .io_bytes_max = 4096,
                                                        .header_bytes_max = 4096},
                                                       KeyRenewal::every_answer, 0);
        bad->received = [this](RawConnection& connection, const Completion& completion) {
            if (completion.opcode == CompletionOpcode::receive) {
                if (info) return info(connection);
                return bad->send(connection, bad->info(depth, chunk), std::nullopt);
            }
            const auto immediate = ImmediateCodec(depth).decode(completion.immediate);
            if (immediate && immediate->type == ImmediateType::request && request) {
                ++requests;
                request(connection, immediate->permit);
            }
        };
    }
    void answer(RawConnection& connection, std::uint32_t key_permit, std::uint32_t immediate) {
        std::byte body[KeyResponseMessage::wire_bytes];
        KeyResponseMessage{.permit = static_cast<std::uint16_t>(key_permit), .key = 1}.emit(body);
        bad->send(connection, body, immediate);
    }
    void run(Duration time = 2s) {
        scene.start_client();
        scene.client->errors_expected = false;
        scene.world.run_for(time);
        // Times that the link was up are the bad server's: the client must not have been opened.
        dropped = scene.client->session.status().paths.at(0);
        bad.reset();
        scene.world.run_for(10ms);
        scene.start_server();
    }
    void good_end() {
        REQUIRE(scene.ready());
        scene.client->run(15, 200);
        CHECK(scene.finish());
        CHECK(scene.at_rest());
        CHECK(scene.close_client());
        CHECK(scene.close_server());
        for (const std::string& line : scene.findings.lines) FAIL_CHECK(line);
    }
    RawConnection& service() { return *bad->connections.back(); }

    Scene scene;
    std::unique_ptr<RawServer> bad;
    std::function<void(RawConnection&)> info;
    std::function<void(RawConnection&, std::uint32_t)> request;
    std::uint32_t requests = 0;
    PathStatus dropped;
};

std::vector<std::byte> bytes_of(std::size_t count, int value) {
    return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

}  // namespace

TEST_CASE("answers to a connect that are not") {
    Trap trap;
    SECTION("empty") { trap.bad->connect_reply = bytes_of(1, 0); }
    SECTION("garbage") { trap.bad->connect_reply = bytes_of(56, 0xa5); }
    SECTION("accepted, with an error") {
        trap.bad->response = ConnectResponseMessage::reject(ENOMEM);
    }
    SECTION("no chunks") { trap.bad->response.queue_depth = 0; }
    SECTION("one chunk") { trap.bad->response.queue_depth = 1; }
    SECTION("no data") { trap.bad->response.io_bytes_max = 0; }
    SECTION("no headers") { trap.bad->response.header_bytes_max = 0; }
    SECTION("too small headers") {
        trap.bad->response.header_bytes_max = 512;
        trap.bad->response.io_bytes_max = 8192 - 512;
    }
    SECTION("more than an immediate can name") { trap.bad->response.queue_depth = 65535; }
    SECTION("sizes without end") {
        trap.bad->response.io_bytes_max = 0xffffffff;
        trap.bad->response.header_bytes_max = 0xffffffff;
    }
    SECTION("rejected without a reason") { trap.bad->reject.emplace(); }
    SECTION("rejected with garbage") { trap.bad->reject = bytes_of(56, 0xff); }
    trap.run();
    CHECK(trap.dropped.attempts > 2);
    trap.good_end();
}

TEST_CASE("what a server offers that cannot be is named with its numbers, once") {
    Trap trap;
    std::string why = "cannot use the server: it offers a queue depth of ";
    SECTION("impossible chunks") {
        trap.bad->response.queue_depth = 65535;
        why +=
            "65535 with 4096 bytes of data and 4096 of headers per request: max_io_size, "
            "max_hdr_size and queue_depth do not make possible chunks";
    }
    SECTION("too few for a session") {
        trap.bad->response.queue_depth = 1;
        why +=
            "1 with 4096 bytes of data and 4096 of headers per request; a session needs a "
            "depth of 2 and 544 bytes of headers";
    }
    trap.run();
    CHECK(trap.dropped.reason == why);
    CHECK(trap.dropped.error == Error::protocol);
    CHECK(std::ranges::count_if(trap.scene.recorder.lines(), [&](const std::string& line) {
              return line.find(why) != std::string::npos;
          }) == 1);
    CHECK_FALSE(trap.scene.client->session.status().protection);
    CHECK(trap.scene.client->session.status().queue_depth == 0);
    trap.good_end();
}

TEST_CASE("a server whose path never comes up is not known") {
    Trap trap;
    trap.info = [](RawConnection&) {};
    trap.scene.start_client();
    const auto status = [&] { return trap.scene.client->session.status(); };
    REQUIRE(
        trap.scene.run_until([&] { return status().paths.at(0).state == PathState::exchanging; }));
    CHECK(trap.scene.client->session.queue_depth() == depth);
    CHECK_FALSE(status().protection);
    CHECK(status().queue_depth == 0);
    CHECK(status().permits_free == 0);
    CHECK(trap.scene.close_client());
}

// One that knows no sequences must not be taken for one that does: what its lost path left would be
// sent again at once.
TEST_CASE(
    "what protects requests is what the server of the first path can, whoever accepted last") {
    Trap trap;
    Scene& scene = trap.scene;
    trap.info = [](RawConnection&) {};
    trap.bad->response.features = features_of(Feature::failover);
    const auto reject = ConnectResponseMessage::reject(ECONNRESET);
    reject.emit(trap.bad->reject.emplace(ConnectResponseMessage::wire_bytes));
    RawServer without(scene.world, scene.world.add_host({"10.0.0.50"}));
    without.response = trap.bad->response;
    without.response.features = 0;
    RawConnection* asks = nullptr;
    without.received = [&](RawConnection& connection, const Completion& completion) {
        if (completion.opcode == CompletionOpcode::receive) asks = &connection;
    };
    scene.start_client();
    ClientSession& session = scene.client->session;
    REQUIRE(!session.add_path(
        {.fabric = &scene.client->fabric, .source = "", .destination = "10.0.0.50:1235"}));
    REQUIRE(scene.run_until([&] { return asks != nullptr; }));
    trap.bad->reject.reset();
    const auto state = [&](std::size_t path) { return session.status().paths.at(path).state; };
    REQUIRE(scene.run_until([&] { return state(0) == PathState::exchanging; }));
    without.send(*asks, without.info(depth, chunk), std::nullopt);
    REQUIRE(scene.run_until([&] { return state(1) == PathState::connected; }, 100ms));
    CHECK(session.status().protection == Protection::fenced);
    CHECK(scene.close_client());
}

TEST_CASE("info responses that are not") {
    Trap trap;
    std::vector<std::byte> good = trap.bad->info(depth, chunk);
    bool silent = false;
    SECTION("none") {
        trap.info = [](RawConnection&) {};
        silent = true;
    }
    SECTION("bad bytes") {
        const int kind = GENERATE(range(0, 10));
        CAPTURE(kind);
        switch (kind) {
            case 0:
                good = bytes_of(3, 0);
                break;
            case 1:
                good[0] = std::byte{4};
                break;
            case 2:
                good[2] = std::byte{0};
                break;  // no descriptor
            case 3:
                good[2] = std::byte{2};
                break;  // one is missing
            case 4:
                good[3] = std::byte{255};
                break;  // many are missing
            case 5:
                good[20] = std::byte{1};
                break;  // length not of whole chunks
            case 6:
                good[22] = std::byte{1};
                break;  // too short
            case 7:
                good[23] = std::byte{1};
                break;  // too long
            case 8:
                good = bytes_of(264, 0xee);
                break;
            case 9:
                good = bytes_of(4000, 1);
                break;
        }
        trap.info = [&](RawConnection& connection) {
            trap.bad->send(connection, good, std::nullopt);
        };
    }
    SECTION("an immediate instead") {
        trap.info = [&](RawConnection& connection) {
            trap.bad->send(connection, good, ImmediateCodec::heartbeat());
        };
    }
    trap.run();
    CHECK(trap.dropped.attempts > (silent ? 1 : 2));
    CHECK(trap.scene.client->links_up == 0);
    trap.good_end();
}

TEST_CASE("answers to requests that are not") {
    Trap trap;
    const ImmediateCodec codec(depth);
    Duration time = 2s;
    SECTION("a permit that is not in flight") {
        trap.request = [&](auto& c, auto) { trap.answer(c, 3, codec.response(3, 0)); };
    }
    SECTION("a permit that does not exist") {
        trap.request = [&](auto& c, auto p) { trap.answer(c, p, 1u << 28 | 100); };
    }
    SECTION("a key for another permit") {
        trap.request = [&](auto& c, auto p) { trap.answer(c, p - 1, codec.response(p, 0)); };
    }
    SECTION("a key for a permit that does not exist") {
        trap.request = [&](auto& c, auto p) { trap.answer(c, 999, codec.response(p, 0)); };
    }
    SECTION("no key") {
        trap.request = [&](auto& c, auto p) { trap.bad->write(c, {}, 0, codec.response(p, 0)); };
    }
    SECTION("on another connection") {
        trap.request = [&](auto&, auto p) {
            auto& all = trap.bad->connections;
            trap.answer(*all[all.size() - 1], p, codec.response(p, 0));
        };
    }
    SECTION("twice") {
        trap.request = [&](auto& c, auto p) {
            trap.answer(c, p, codec.response(p, EINTR));
            trap.answer(c, p, codec.response(p, EINTR));
        };
        trap.scene.findings.lines.clear();
    }
    SECTION("a request") {
        trap.request = [&](auto& c, auto p) { trap.bad->write(c, {}, 0, codec.request(p, 0)); };
    }
    SECTION("a message without immediate") {
        trap.request = [&](auto& c, auto) { trap.bad->send(c, bytes_of(8, 4), std::nullopt); };
    }
    SECTION("another info response") {
        trap.request = [&](auto& c, auto) {
            trap.bad->send(c, trap.bad->info(depth, chunk), std::nullopt);
        };
    }
    SECTION("memory of nobody's") {
        trap.request = [&](auto& c, auto p) {
            trap.bad->write(c, {4096, 12345, 8}, 8, codec.response(p, 0));
        };
    }
    SECTION("of unknown type: ignored, until silence") {
        time = 40s;  // it may be busy with the message
        trap.request = [&](auto& c, auto) { trap.bad->write(c, {}, 0, 3u << 28); };
    }
    SECTION("garbage in the answer to a heartbeat is no matter") {
        time = 40s;
        trap.request = [&](auto& c, auto) {
            trap.bad->write(c, {}, 0, ImmediateCodec::heartbeat_ack() | 0x1234);
            trap.bad->write(c, {}, 0, ImmediateCodec::heartbeat() | 0x1234);
        };
    }
    trap.run(time);
    CHECK(trap.requests > 1);
    CHECK(trap.scene.client->links_down > 0);
    std::erase_if(trap.scene.findings.lines,
                  [](const std::string& line) { return line.starts_with("OPEN failed: Inter"); });
    trap.good_end();
}
