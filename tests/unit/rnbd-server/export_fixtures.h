// What tests of exports share: their configurations, their folders, and a volume that writes.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/contract/storage/nbd_server.h"
#include "tests/unit/rnbd-server/told_world.h"

namespace rnbd::told {

using namespace std::chrono_literals;
using testing::TemporaryFolder;

inline ServerConfig::Allow writes(std::string session) {
    return {.session = std::move(session), .access = AccessMode::read_write};
}

// A file of 1 MiB that is made.
inline ServerConfig::Export in_file(std::string name, std::string path,
                                    std::vector<ServerConfig::Allow> allow = {}) {
    ServerConfig::Export made = memory(std::move(name), std::move(allow));
    made.storage.kind = StorageOptions::Kind::path;
    made.storage.path = std::move(path);
    return made;
}

inline ServerConfig::Export on_nbd(std::string name, std::string uri,
                                   std::vector<ServerConfig::Allow> allow = {}) {
    ServerConfig::Export made;
    made.name = std::move(name);
    made.storage.kind = StorageOptions::Kind::nbd;
    made.storage.uri = std::move(uri);
    made.allow = std::move(allow);
    return made;
}

inline Volume& ready(World& world, const std::string& name) {
    Volume& volume = *world.target.find(name);
    world.run_until([&] { return volume.state() == Volume::State::ready; });
    return volume;
}

// body: takes the server of such a command, and a World with an export "vol" on it, to which host-a
// may write. Skipped aloud where the server cannot be started.
template <typename Body>
void with_nbd_export(std::vector<std::string> command, Body body) {
    try {
        testing::ServedFile served(std::move(command));
        World world({on_nbd("vol", served.server->uri(), {writes("host-a")})});
        body(served, world);
    } catch (const testing::Unavailable& unavailable) {
        testing::skip(unavailable.reason);
    }
}

// An open volume with writes that end when they can.
struct Writer final : RemoteVolumeHandler {
    Writer(World& its_world, const std::string& name, AccessMode access = AccessMode::read_write)
        : world(its_world), volume(*its_world.session, {.name = name, .access = access}, *this) {
        world.run_until([&] { return volume.state() == VolumeState::open; });
    }
    ~Writer() {
        world.run_until([&] { return under_way == 0; });
        volume.close();
        world.run_until([&] { return closed; });
    }
    void on_volume_changed(RemoteVolume&) override {}
    void on_volume_closed(RemoteVolume&) override { closed = true; }

    void write() {
        auto permit = world.session->rtrs().try_take();
        REQUIRE(permit);
        ++under_way;
        volume.submit(std::move(*permit),
                      {.operation = VolumeOperation::write,
                       .offset = 0,
                       .bytes = 4096,
                       .responded =
                           [](void* context, rtrs::Permit, std::error_code error) {
                               CHECK(!error);
                               --static_cast<Writer*>(context)->under_way;
                           },
                       .context = this});
    }

    World& world;
    int under_way = 0;
    bool closed = false;
    RemoteVolume volume;
};

}  // namespace rnbd::told
