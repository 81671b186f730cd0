// A good client and its server, with a place for a bad client, which must cost the two nothing.
#pragma once

#include <catch2/catch.hpp>

#include "tests/sim/raw_peer.h"
#include "tests/sim/session_world.h"

namespace simtest {

// A server with a good client, and a host for a bad one.
struct Town {
    explicit Town(SceneOptions options = quick_options(3))
        : scene(options), host(scene.world.add_host({"10.0.0.66"})) {
        scene.start_server();
        scene.start_client();
        REQUIRE(scene.ready());
        // What a bad client may do to it shows in a few hundred requests a second, too.
        scene.client->run(2, 1u << 30, ClientLife::Pace::leisurely);
    }
    std::unique_ptr<RawClient> raw() {
        return std::make_unique<RawClient>(scene.world, host, scene.address());
    }
    std::unique_ptr<RawClient> opened(std::uint16_t connections = 2) {
        auto client = raw();
        REQUIRE(client->open(connections, "bad", scene.options.server.queue_depth,
                             scene.options.server.chunk_bytes));
        return client;
    }
    // The good client never noticed; the bad one's session ends.
    void check_peace(std::unique_ptr<RawClient> client) {
        CHECK(scene.client->links_down == 0);
        end(std::move(client));
    }
    void end(std::unique_ptr<RawClient> client) {
        if (client) client->end();
        CHECK(scene.run_until([&] { return scene.server->server.sessions().size() == 1; }, 2s));
        scene.client->pause();
        CHECK(scene.finish());
        CHECK(scene.close_client());
        CHECK(scene.close_server());
        for (const std::string& line : scene.findings.lines) FAIL_CHECK(line);
    }

    Scene scene;
    SimHost& host;
};

// Says that it lives whenever the server asks.
inline void keep_alive(RawClient& client) {
    client.connections[0]->on_receive = [&client](RawConnection& one, const Completion& told) {
        (void)one.endpoint->post_receive(
            told.context, {one.receives.data() + told.context * RawConnection::receive_bytes,
                           RawConnection::receive_bytes});
        if (told.opcode == CompletionOpcode::receive_immediate &&
            told.immediate == ImmediateCodec::heartbeat()) {
            client.write(0, {}, {}, ImmediateCodec::heartbeat_ack());
        }
    };
}

}  // namespace simtest
