// A server with exports and a client's session to it, on one reactor over TCP on loopback.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "rnbd-server/state/epoch_file.h"
#include "rnbd-server/target.h"
#include "rnbd/remote_catalog.h"
#include "rnbd/remote_volume.h"
#include "rtrs/fabrics.h"
#include "rtrs/null_tracer.h"
#include "rtrs/server.h"

namespace rnbd::told {

struct World final : RemoteSessionHandler {
    explicit World(const std::vector<ServerConfig::Export>& exports)
        : target(*reactor, epochs, writers, Target::Reads::in_portions),
          server({*reactor, random, tracer},
                 {.queue_depth = 16, .messages = rtrs::MessageOptions{}}, target) {
        target.open_exports(exports);
        target.when_closed([this] { server_closed = true; });
        const auto address = server.listen(*tcp, "127.0.0.1:0");
        REQUIRE(address);
        rtrs::ClientSessionOptions options{.name = "host-a", .messages = rtrs::MessageOptions{}};
        options.paths.push_back({tcp.get(), "", *address});
        session = std::make_unique<RemoteSession>(
            rtrs::SessionEnvironment{*reactor, random, tracer}, std::move(options), *this);
        REQUIRE(!session->open());
        run_until([&] { return session->catalog().known(); });
        news.clear();
    }
    ~World() {
        if (!session_closed) session->close();
        run_until([&] { return session_closed; });
        server.close();
        run_until([&] { return server_closed; });
    }
    // Generous: a test that fails takes so long.
    template <typename Done>
    void run_until(Done done) {
        for (int i = 0; i < 2000 && !done(); ++i) reactor->run_once(std::chrono::milliseconds(50));
        CHECK(done());
    }
    void on_session_closed() override { session_closed = true; }
    void on_catalog_event(const CatalogEvent& event) override {
        news.push_back(std::string(to_string(event.kind)) + " " + event.entry.name +
                       (event.entry.writable ? " rw" : ""));
    }

    std::unique_ptr<rtrs::Reactor> reactor = rtrs::Reactor::create().value();
    rtrs::Random random{7};
    rtrs::NullTracer tracer;
    std::unique_ptr<rtrs::Fabric> tcp = rtrs::make_tcp_fabric(*reactor, {});
    EpochFile epochs{*reactor, ""};
    WriterFile writers{*reactor, ""};
    Target target;
    rtrs::Server server;
    std::vector<std::string> news;
    bool session_closed = false;
    bool server_closed = false;
    std::unique_ptr<RemoteSession> session;
};

inline ServerConfig::Export memory(std::string name, std::vector<ServerConfig::Allow> allow) {
    ServerConfig::Export made;
    made.name = std::move(name);
    made.storage.kind = StorageOptions::Kind::memory;
    made.storage.size_bytes = 1 << 20;
    made.allow = std::move(allow);
    return made;
}

}  // namespace rnbd::told
