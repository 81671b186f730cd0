#include "rtrs/fabric/tcp/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace rtrs::tcp {

// crc32_iscsi neither inverts its seed nor its result, takes an int length and, in this version, a
// pointer to non-const that it only reads.
void Crc32c::add(Bytes piece) noexcept {
    constexpr std::size_t step_max = std::size_t{1} << 30;
    while (!piece.empty()) {
        const Bytes step = piece.first(std::min(piece.size(), step_max));
        auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(step.data()));
        state_ = crc32_iscsi(data, static_cast<int>(step.size()), state_);
        piece = piece.subspan(step.size());
    }
}

std::uint32_t crc32c(Bytes bytes) noexcept {
    Crc32c crc;
    crc.add(bytes);
    return crc.value();
}

}  // namespace rtrs::tcp
