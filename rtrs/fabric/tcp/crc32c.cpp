#include "rtrs/fabric/tcp/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>
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

std::uint32_t of_28_by_isal(const std::byte* data) {
    return ~continue_isal(~std::uint32_t{0}, data, 28);
}

struct Ways {
    ContinueCrc32c proceed;
    CopyCrc32c copy;
    std::uint32_t (*of_28)(const std::byte* data);
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
    if (has_folds() && wide_is_free()) return {continue_by_folds, copy_by_folds, crc32c_of_28};
    if (has_lanes()) return {continue_by_lanes, copy_then<continue_by_lanes>, crc32c_of_28};
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

std::uint32_t crc32c_of_28(std::span<const std::byte, 28> bytes) noexcept {
    return ways.of_28(bytes.data());
}

std::uint32_t crc32c(Bytes bytes) noexcept {
    Crc32c crc;
    crc.add(bytes);
    return crc.value();
}

}  // namespace rtrs::tcp
