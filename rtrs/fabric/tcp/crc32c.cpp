#include "rtrs/fabric/tcp/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

#include "rtrs/fabric/tcp/crc32c_x86.h"

namespace rtrs::tcp {
namespace {

// crc32_iscsi takes an int length and a pointer to non-const that it only reads.
std::uint32_t continue_isal(std::uint32_t state, const std::byte* data, std::size_t bytes) {
    constexpr std::size_t step_max = std::size_t{1} << 30;
    while (bytes > 0) {
        const std::size_t step = std::min(bytes, step_max);
        auto* from = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data));
        state = crc32_iscsi(from, static_cast<int>(step), state);
        data += step;
        bytes -= step;
    }
    return state;
}

ContinueCrc32c choose() noexcept {
#if defined(__x86_64__)
    if (x86::has_folds() && x86::wide_is_free()) return x86::continue_by_folds;
    if (x86::has_lanes()) return x86::continue_by_lanes;
#endif
    return continue_isal;
}

const ContinueCrc32c continue_crc = choose();

}  // namespace

void Crc32c::add(Bytes piece) noexcept {
    state_ = continue_crc(state_, piece.data(), piece.size());
}

std::uint32_t crc32c(Bytes bytes) noexcept {
    Crc32c crc;
    crc.add(bytes);
    return crc.value();
}

}  // namespace rtrs::tcp
