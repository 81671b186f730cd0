#include "rtrs/fabric/tcp/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstring>

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

std::uint32_t of_28_by_isal(std::uint64_t bytes_0, std::uint64_t bytes_8, std::uint64_t bytes_16,
                            std::uint32_t bytes_24) noexcept {
    std::array<std::byte, 28> bytes;
    store_le64(bytes.data(), bytes_0);
    store_le64(bytes.data() + 8, bytes_8);
    store_le64(bytes.data() + 16, bytes_16);
    store_le32(bytes.data() + 24, bytes_24);
    return ~continue_isal(~std::uint32_t{0}, bytes.data(), bytes.size());
}

struct Ways {
    ContinueCrc32c proceed;
    CopyCrc32c copy;
    Crc32cOf28 of_28;
};

template <ContinueCrc32c proceed>
std::uint32_t copy_then(std::uint32_t state, std::byte* to, const std::byte* from,
                        std::size_t bytes) {
    std::memcpy(to, from, bytes);
    return proceed(state, from, bytes);
}

Ways choose() noexcept {
#if defined(__x86_64__)
    using namespace x86;
    if (has_folds() && wide_is_free()) {
        return {folds_leave_gaps() ? continue_by_folds_and_lanes : continue_by_folds, copy_by_folds,
                x86::crc32c_of_28};
    }
    if (has_lanes()) return {continue_by_lanes, copy_then<continue_by_lanes>, x86::crc32c_of_28};
#endif
    return {continue_isal, copy_then<continue_isal>, of_28_by_isal};
}

const Ways ways = choose();

}  // namespace

void Crc32c::add(Bytes piece) noexcept {
    state_ = ways.proceed(state_, piece.data(), piece.size());
}

void Crc32c::add_copied(std::byte* to, Bytes piece) noexcept {
    state_ = ways.copy(state_, to, piece.data(), piece.size());
}

std::uint32_t crc32c_of_28(std::uint64_t bytes_0, std::uint64_t bytes_8, std::uint64_t bytes_16,
                           std::uint32_t bytes_24) noexcept {
    return ways.of_28(bytes_0, bytes_8, bytes_16, bytes_24);
}

std::uint32_t crc32c(Bytes bytes) noexcept {
    Crc32c crc;
    crc.add(bytes);
    return crc.value();
}

}  // namespace rtrs::tcp
