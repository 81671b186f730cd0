// What a session hears of the blocks of an export.
#include "tests/contract/storage/nbd_server.h"
#include "tests/unit/rnbd-server/told_world.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace rnbd::testing;

namespace {

struct Opened final : RemoteVolumeHandler {
    void on_volume_changed(RemoteVolume&) override {}
    void on_volume_closed(RemoteVolume&) override { closed = true; }
    bool closed = false;
};

}  // namespace

TEST_CASE("block sizes: a physical block that has no room in the answer is told as a smaller one") {
    const std::string preferred = GENERATE("16384", "65536");
    try {
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "--filter=blocksize-policy", "file",
                           "IMAGE", "blocksize-minimum=512", "blocksize-preferred=" + preferred,
                           "blocksize-maximum=1048576"});
        ServerConfig::Export config;
        config.name = "vol";
        config.storage.kind = StorageOptions::Kind::nbd;
        config.storage.uri = served.server->uri();
        config.allow = {{.session = "host-a", .access = AccessMode::read_write}};
        World world({config});
        Opened opened;
        RemoteVolume volume(*world.session, {.name = "vol", .access = AccessMode::read_write},
                            opened);
        world.run_until([&] { return volume.state() == VolumeState::open; });
        CHECK(volume.geometry().physical_block_bytes == (preferred == "16384" ? 16384 : 32768));
        volume.close();
        world.run_until([&] { return opened.closed; });
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}
