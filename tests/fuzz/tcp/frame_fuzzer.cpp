// Frame headers, hellos and first frames from any bytes. What is accepted must be emitted as it
// was. The first byte says whether the checksums are made right, without which little would get
// far, and how many bytes of a first frame come at a time.
#include <algorithm>
#include <vector>

#include "rtrs/base/assert.h"
#include "rtrs/fabric/tcp/crc32c.h"
#include "rtrs/fabric/tcp/frame.h"
#include "rtrs/fabric/tcp/handshake_reader.h"

using namespace rtrs;
using namespace rtrs::tcp;

namespace {

void check_header(std::array<std::byte, header_bytes> bytes) {
    FrameHeader header;
    if (parse_header(bytes, header)) return;
    RTRS_ASSERT(header.payload_bytes <= Endpoint::payload_bytes_max);
    std::array<std::byte, header_bytes> again;
    emit_header(header, again.data());
    RTRS_ASSERT(again == bytes);
}

void check_hello(Bytes bytes) {
    const auto hello = parse_hello(bytes);
    if (!hello || hello->version != fabric_version) return;
    RTRS_ASSERT(hello_bytes + hello->private_bytes == bytes.size());
    if (hello->private_bytes > private_data_reply_max) return;
    const HandshakeFrame frame = emit_handshake(Opcode::accept, *hello, bytes.subspan(hello_bytes));
    RTRS_ASSERT(std::ranges::equal(
        Bytes(frame.bytes).subspan(header_bytes, frame.size - header_bytes), bytes));
}

void check_first_frame(Bytes bytes, std::size_t at_most, HandshakeReader::Awaited awaited) {
    HandshakeReader reader(awaited);
    auto progress = HandshakeReader::Progress::more;
    while (progress == HandshakeReader::Progress::more && !bytes.empty()) {
        const MutableBytes space = reader.space();
        const std::size_t n = std::min({space.size(), bytes.size(), at_most});
        RTRS_ASSERT(n > 0);
        std::ranges::copy(bytes.first(n), space.begin());
        bytes = bytes.subspan(n);
        const auto result = reader.received(n);
        if (!result) return;
        progress = *result;
    }
    if (progress == HandshakeReader::Progress::whole)
        RTRS_ASSERT(reader.private_data().size() <= private_data_reply_max);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1) return 0;
    const Bytes bytes = std::as_bytes(std::span(data, size)).subspan(1);
    check_hello(bytes);
    if (bytes.size() < header_bytes) return 0;
    std::array<std::byte, header_bytes> header;
    std::copy_n(bytes.begin(), header_bytes, header.begin());
    if ((data[0] & 1) != 0) {
        store_le16(header.data(), frame_magic);
        const Bytes payload = bytes.subspan(header_bytes);
        if (const std::uint32_t n = load_le32(header.data() + 4); n <= payload.size())
            store_le32(header.data() + 24, crc32c(payload.first(n)));
        store_le32(header.data() + 28, crc32c(Bytes(header).first(28)));
    }
    check_header(header);
    std::vector<std::byte> frame(bytes.begin(), bytes.end());
    std::ranges::copy(header, frame.begin());
    for (const auto awaited :
         {HandshakeReader::Awaited::connect_request, HandshakeReader::Awaited::answer})
        check_first_frame(frame, 1 + (data[0] >> 1), awaited);
    return 0;
}
