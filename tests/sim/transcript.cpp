// What the traces say in a few stories, compared with tests/transcripts/NAME.txt.
//   RNBD_REWRITE=1 sim_transcripts    writes the files anew: read the difference before you keep it
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/sim/volume_world.h"

using namespace simtest;

namespace {

// The trace of a story, with the test's own lines in between.
class Story {
  public:
    Story(std::string name, Scene& scene) : name_(std::move(name)), scene_(scene) {}
    void note(const std::string& text) { scene_.recorder.trace(TraceLevel::info, "***", text, ""); }

    void compare() {
        std::string told;
        for (std::string line : scene_.recorder.lines()) {
            while (line.ends_with(' ')) line.pop_back();
            told += line + "\n";
        }
        const std::string path = std::string(RNBD_TRANSCRIPTS) + "/" + name_ + ".txt";
        if (std::getenv("RNBD_REWRITE") != nullptr) {
            std::ofstream(path) << told;
            WARN("written: " << path);
            return;
        }
        std::ifstream file(path);
        std::stringstream wanted;
        wanted << file.rdbuf();
        CAPTURE(path);
        CHECK(told == wanted.str());
        for (const std::string& line : scene_.findings.lines) FAIL_CHECK(line);
    }

  private:
    std::string name_;
    Scene& scene_;
};

}  // namespace

TEST_CASE("path-reconnects-after-heartbeat-loss") {
    Scene scene(quick_options(1));
    Story story("path-reconnects-after-heartbeat-loss", scene);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.world.run_for(200ms);
    story.note("the link between the hosts is cut, in silence");
    scene.world.network().cut("10.0.0.1", "10.0.0.2");
    scene.world.run_for(2s);
    story.note("the link is whole again");
    scene.world.network().heal_all();
    CHECK(scene.ready());
    story.note("the client closes");
    CHECK(scene.close_client());
    scene.world.run_for(100ms);
    story.compare();
}

TEST_CASE("requests-wait-while-no-path-is-up") {
    Scene scene(quick_options(2));
    Story story("requests-wait-while-no-path-is-up", scene);
    scene.start_server();
    scene.server->service_max = 1ms;
    scene.start_client();
    REQUIRE(scene.ready());
    scene.client->run(10, 200);
    scene.world.run_for(3ms);
    story.note("the server is killed");
    scene.crash_server(SimHost::CrashSeen::by_reset);
    scene.world.run_for(700ms);
    const ClientSessionStatus status = scene.client->session.status();
    story.note(fmt::format("{} requests are held, {} are in flight, {} have failed", status.held,
                           status.in_flight, scene.client->failed));
    scene.start_server();
    story.note("the server is back");
    CHECK(scene.finish());
    story.note(fmt::format("all {} requests are answered, {} have failed", scene.client->answered,
                           scene.client->failed));
    story.compare();
}

TEST_CASE("server-supersedes-a-stale-path") {
    Scene scene(quick_options(3));
    Story story("server-supersedes-a-stale-path", scene);
    scene.start_server();
    scene.start_client();
    REQUIRE(scene.ready());
    scene.world.run_for(50ms);
    story.note("the client loses its connections, and the server does not hear of it");
    scene.world.network().reset("10.0.0.2", "10.0.0.1", SimNetwork::Seen::by_first);
    CHECK(scene.run_until([&] { return scene.client->links_up == 2 && scene.client->open; }));
    story.note("the client is back, long before the heartbeat timeout");
    story.compare();
}

TEST_CASE("open-is-retried-until-the-export-is-there") {
    Volumes volumes(quick_options(4));
    Story story("open-is-retried-until-the-export-is-there", volumes.scene);
    volumes.exports["vol1"].refuse = ENOENT;
    volumes.start_server();
    volumes.start_client();
    CHECK(!volumes.opened(1s));
    volumes.user1->run(8, 4);
    story.note(fmt::format("{} requests wait", volumes.user1->made));
    volumes.exports["vol1"].refuse = EPERM;
    volumes.scene.world.run_for(2s);
    story.note("the export is there");
    volumes.exports["vol1"].refuse = 0;
    CHECK(volumes.opened());
    CHECK(volumes.until([&] { return volumes.user1->idle(); }));
    story.note(fmt::format("all {} requests are answered", volumes.user1->answered));
    volumes.end();
    story.compare();
}
