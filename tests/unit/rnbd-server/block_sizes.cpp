// What a session hears of the blocks of an export.
#include "tests/unit/rnbd-server/export_fixtures.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace rnbd::testing;

TEST_CASE("block sizes: a physical block that has no room in the answer is told as a smaller one") {
    const std::string preferred = GENERATE("16384", "65536");
    with_nbd_export(
        {"nbdkit", "-f", "-U", "SOCKET", "--filter=blocksize-policy", "file", "IMAGE",
         "blocksize-minimum=512", "blocksize-preferred=" + preferred, "blocksize-maximum=1048576"},
        [&](ServedFile&, World& world) {
            const Writer opened(world, "vol");
            CHECK(opened.volume.geometry().physical_block_bytes ==
                  (preferred == "16384" ? 16384 : 32768));
        });
}
