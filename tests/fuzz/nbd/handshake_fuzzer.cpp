// Any bytes of a client: the handshake never fails an assertion, never answers without bound, and
// gives the same result however the stream is cut.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "rnbd-client/nbd/handshake.h"
#include "rtrs/base/assert.h"
#include "tests/unit/rnbd-client/nbd_bytes.h"

using namespace rnbd::nbd;

namespace {

const FixedExports& exports() {
    static const FixedExports table = [] {
        FixedExports t;
        t.entries.push_back({"vol1", {.size_bytes = 1u << 30, .text = "a disk"}});
        t.entries.push_back({"vol2", {.size_bytes = 1u << 20}});
        t.entries.push_back({"vol3", {.unavailable = "not open"}});
        return t;
    }();
    return table;
}

struct Result {
    std::vector<std::byte> replies;
    std::size_t taken = 0;
    Handshake::State state{};
};

Result run(Bytes input, std::size_t piece_bytes) {
    Handshake handshake(exports());
    Result result;
    while (result.taken < input.size() && !handshake.finished()) {
        std::vector<std::byte> replies;
        const std::size_t now = std::min(piece_bytes, input.size() - result.taken);
        const std::size_t taken = handshake.step(input.subspan(result.taken, now), replies);
        RTRS_ASSERT(taken <= now);
        // Nothing taken means that answers wait, or that it is over.
        RTRS_ASSERT(taken > 0 || !replies.empty() || handshake.finished());
        result.taken += taken;
        result.replies.insert(result.replies.end(), replies.begin(), replies.end());
    }
    result.state = handshake.state();
    return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1) return 0;
    const std::size_t piece = 1u + data[0];
    // With the client flags in place, or nearly nothing would get past them.
    std::vector<std::byte> input = ByteString().u32(data[0] & 3).bytes();
    for (std::size_t i = 1; i < size; ++i) input.push_back(static_cast<std::byte>(data[i]));
    const Result whole = run(input, input.size());
    const Result pieces = run(input, piece);
    RTRS_ASSERT(whole.replies == pieces.replies);
    RTRS_ASSERT(whole.taken == pieces.taken);
    RTRS_ASSERT(whole.state == pieces.state);
    return 0;
}
