// How a test of a session ends: what was found wrong is reported, and all comes to rest.
#pragma once

#include <catch2/catch.hpp>

#include "tests/sim/session_world.h"

namespace simtest {

inline void check(const Scene& scene) {
    for (const std::string& line : scene.findings.lines) FAIL_CHECK(line);
    if (scene.findings.lines.empty()) return;
    const auto& lines = scene.recorder.lines();
    for (std::size_t i = lines.size() > 30 ? lines.size() - 30 : 0; i < lines.size(); ++i) {
        UNSCOPED_INFO(lines[i]);
    }
    FAIL_CHECK("the last lines of the trace");
}

// All of it works, then ends.
inline void work_and_end(Scene& scene, std::uint32_t depth, std::uint64_t requests) {
    REQUIRE(scene.ready());
    scene.client->run(depth, requests);
    CHECK(scene.finish());
    CHECK(scene.client->made >= requests);
    CHECK(scene.at_rest());
    CHECK(scene.close_client());
    CHECK(scene.close_server());
    scene.world.run_for(20s);
    if (!scene.crashed) CHECK(scene.world.network().connections() == 0);
    check(scene);
}

}  // namespace simtest
