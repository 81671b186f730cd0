#if defined(__x86_64__)

#include "rtrs/fabric/tcp/crc32c_x86.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace rtrs::tcp::x86 {
namespace {

// Modulo the Castagnoli polynomial, bit-reflected.
constexpr std::uint32_t times_x(std::uint32_t value) {
    return (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78 : 0);
}
consteval std::uint32_t power_of_x(std::size_t n) {
    std::uint32_t value = 0x80000000;
    for (; n > 0; --n) value = times_x(value);
    return value;
}

std::uint64_t load(const std::byte* from) noexcept {
    std::uint64_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// The register after zero bytes. The carry-less product is one bit short of 64 and the crc32
// instruction multiplies by x^32: hence the factor is 33 powers smaller than their number of bits.
[[gnu::target("sse4.2,pclmul")]] inline std::uint64_t past_zeros(std::uint64_t state,
                                                                 std::uint32_t factor) noexcept {
    const __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<std::int64_t>(state)),
                             _mm_cvtsi64_si128(static_cast<std::int64_t>(factor)), 0);
    return _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(product)));
}
template <std::size_t bytes>
[[gnu::target("sse4.2,pclmul")]] inline std::uint64_t past_zeros(std::uint64_t state) noexcept {
    constexpr std::uint32_t factor = power_of_x(8 * bytes - 33);
    return past_zeros(state, factor);
}

// Three neighbouring lanes of so many bytes each.
template <std::size_t lane_bytes>
[[gnu::target("sse4.2,pclmul")]] inline std::uint64_t three_lanes(std::uint64_t state,
                                                                  const std::byte* data) noexcept {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < lane_bytes; i += 8) {
        state = _mm_crc32_u64(state, load(data + i));
        second = _mm_crc32_u64(second, load(data + lane_bytes + i));
        third = _mm_crc32_u64(third, load(data + 2 * lane_bytes + i));
    }
    return past_zeros<lane_bytes>(past_zeros<lane_bytes>(state) ^ second) ^ third;
}

// Three neighbouring lanes, word by word.
struct Lanes {
    const std::byte* at;  // the next word of the first
    std::size_t bytes;    // of each
    std::uint64_t first = 0, second = 0, third = 0;

    [[gnu::target("sse4.2")]] void go_on() noexcept {
        first = _mm_crc32_u64(first, load(at));
        second = _mm_crc32_u64(second, load(at + bytes));
        third = _mm_crc32_u64(third, load(at + 2 * bytes));
        at += sizeof(std::uint64_t);
    }
    // The register after them, and the one before them. factor: moves it past one lane.
    [[gnu::target("sse4.2,pclmul")]] std::uint32_t end(std::uint64_t before,
                                                       std::uint32_t factor) const noexcept {
        std::uint64_t state = past_zeros(before, factor) ^ first;
        state = past_zeros(state, factor) ^ second;
        return static_cast<std::uint32_t>(past_zeros(state, factor) ^ third);
    }
};

// What moves 16 bytes so many bytes on: factors of their halves, of which the first counts 64
// powers more. As above, less 33 for the product and its place.
template <std::size_t bytes>
constexpr std::int64_t first_factor = power_of_x(8 * bytes + 64 - 33);
template <std::size_t bytes>
constexpr std::int64_t second_factor = power_of_x(8 * bytes - 33);

// 16 bytes of a message stand for what comes so many bytes before them in it.
template <std::size_t bytes>
[[gnu::target("sse4.2,pclmul")]] inline __m128i fold(__m128i part) noexcept {
    const __m128i factors = _mm_set_epi64x(second_factor<bytes>, first_factor<bytes>);
    return _mm_xor_si128(_mm_clmulepi64_si128(part, factors, 0x00),
                         _mm_clmulepi64_si128(part, factors, 0x11));
}

// The register after 16 bytes.
[[gnu::target("sse4.2")]] inline std::uint64_t past_16(__m128i part) noexcept {
    const std::uint64_t half =
        _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(part)));
    return _mm_crc32_u64(half, static_cast<std::uint64_t>(_mm_extract_epi64(part, 1)));
}

inline __m128i load_16(const std::byte* from) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// A folded piece in front and three lanes behind it, of so many steps each.
template <std::size_t steps>
struct FoldAndLanes {
    static constexpr std::size_t folded_step = 64;
    static constexpr std::size_t lane_step = 24;
    static constexpr std::size_t folded_bytes = steps * folded_step;
    static constexpr std::size_t lane_bytes = steps * lane_step;
    static constexpr std::size_t bytes = folded_bytes + 3 * lane_bytes;

    [[gnu::target("sse4.2,pclmul")]] static std::uint64_t run(std::uint64_t state,
                                                              const std::byte* data) noexcept {
        const std::byte* lanes = data + folded_bytes;
        std::uint64_t first = 0;
        std::uint64_t second = 0;
        std::uint64_t third = 0;
        __m128i a = load_16(data);
        __m128i b = load_16(data + 16);
        __m128i c = load_16(data + 32);
        __m128i d = load_16(data + 48);
        a = _mm_xor_si128(a, _mm_cvtsi64_si128(static_cast<std::int64_t>(state)));
        for (std::size_t i = 0; i < steps; ++i) {
            if (i > 0) {
                const std::byte* next = data + i * folded_step;
                a = _mm_xor_si128(fold<folded_step>(a), load_16(next));
                b = _mm_xor_si128(fold<folded_step>(b), load_16(next + 16));
                c = _mm_xor_si128(fold<folded_step>(c), load_16(next + 32));
                d = _mm_xor_si128(fold<folded_step>(d), load_16(next + 48));
            }
            const std::byte* at = lanes + i * lane_step;
            for (std::size_t k = 0; k < lane_step; k += 8) {
                first = _mm_crc32_u64(first, load(at + k));
                second = _mm_crc32_u64(second, load(at + lane_bytes + k));
                third = _mm_crc32_u64(third, load(at + 2 * lane_bytes + k));
            }
        }
        b = _mm_xor_si128(b, fold<16>(a));
        c = _mm_xor_si128(c, fold<16>(b));
        d = _mm_xor_si128(d, fold<16>(c));
        std::uint64_t folded = past_zeros<lane_bytes>(past_16(d)) ^ first;
        folded = past_zeros<lane_bytes>(folded) ^ second;
        return past_zeros<lane_bytes>(folded) ^ third;
    }
};

// 64 bytes, as four times 16, on `next`.
template <std::size_t bytes>
[[gnu::target("avx512f,vpclmulqdq")]] inline __m512i fold_on(__m512i part, __m512i next) noexcept {
    constexpr std::int64_t first = first_factor<bytes>;
    constexpr std::int64_t second = second_factor<bytes>;
    const __m512i factors =
        _mm512_set_epi64(second, first, second, first, second, first, second, first);
    constexpr int exclusive_or_of_three = 0x96;
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(part, factors, 0x00),
                                     _mm512_clmulepi64_epi128(part, factors, 0x11), next,
                                     exclusive_or_of_three);
}

[[gnu::target("avx512f")]] inline __m512i load_64(const std::byte* from) noexcept {
    return _mm512_loadu_si512(from);
}

}  // namespace

bool has_lanes() noexcept {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

bool has_folds() noexcept {
    return has_lanes() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

bool folds_leave_gaps() noexcept {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd");
}

bool wide_is_free() noexcept {
    __builtin_cpu_init();
    return __builtin_cpu_is("amd") || __builtin_cpu_supports("avx512fp16");
}

[[gnu::target("sse4.2,pclmul")]] std::uint32_t continue_by_lanes(std::uint32_t from,
                                                                 const std::byte* data,
                                                                 std::size_t bytes) {
    using Long = FoldAndLanes<30>;  // just below 4 KiB
    constexpr std::size_t short_lane = 128;
    std::uint64_t state = from;
    for (; bytes >= Long::bytes; bytes -= Long::bytes, data += Long::bytes) {
        // A page of its own is not fetched ahead by the hardware; the copy behind us profits too.
        for (std::size_t line = 0; line < Long::bytes; line += 64) {
            _mm_prefetch(reinterpret_cast<const char*>(data + line), _MM_HINT_T0);
        }
        state = Long::run(state, data);
    }
    for (; bytes >= 3 * short_lane; bytes -= 3 * short_lane, data += 3 * short_lane) {
        state = three_lanes<short_lane>(state, data);
    }
    for (; bytes >= 8; bytes -= 8, data += 8) state = _mm_crc32_u64(state, load(data));
    for (; bytes > 0; --bytes, ++data) {
        state =
            _mm_crc32_u8(static_cast<std::uint32_t>(state), std::to_integer<std::uint8_t>(*data));
    }
    return static_cast<std::uint32_t>(state);
}

[[gnu::target("sse4.2")]] std::uint32_t crc32c_of_28(std::uint64_t bytes_0, std::uint64_t bytes_8,
                                                     std::uint64_t bytes_16,
                                                     std::uint32_t bytes_24) noexcept {
    std::uint64_t state = _mm_crc32_u64(~std::uint32_t{0}, bytes_0);
    state = _mm_crc32_u64(state, bytes_8);
    state = _mm_crc32_u64(state, bytes_16);
    return ~_mm_crc32_u32(static_cast<std::uint32_t>(state), bytes_24);
}

namespace {

enum class Copies : std::uint8_t { no, yes };

// 64 bytes from `at` on; also to `to`, if they are copied.
template <Copies copies>
[[gnu::target("avx512f")]] inline __m512i take_64(std::byte* to, const std::byte* from,
                                                  std::size_t at) noexcept {
    const __m512i part = load_64(from + at);
    if constexpr (copies == Copies::yes) _mm512_storeu_si512(to + at, part);
    return part;
}

// What four registers of 64 bytes were folded to.
template <Copies copies>
struct Folded {
    static constexpr std::size_t step = 256;

    __m512i a, b, c, d;

    [[gnu::target("avx512f,vpclmulqdq")]] void begin(std::uint32_t state, std::byte* to,
                                                     const std::byte* from) noexcept {
        a = take_64<copies>(to, from, 0);
        b = take_64<copies>(to, from, 64);
        c = take_64<copies>(to, from, 128);
        d = take_64<copies>(to, from, 192);
        a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi64_si128(std::int64_t{state})));
    }
    [[gnu::target("avx512f,vpclmulqdq")]] void go_on(std::byte* to, const std::byte* from,
                                                     std::size_t at) noexcept {
        a = fold_on<step>(a, take_64<copies>(to, from, at));
        b = fold_on<step>(b, take_64<copies>(to, from, at + 64));
        c = fold_on<step>(c, take_64<copies>(to, from, at + 128));
        d = fold_on<step>(d, take_64<copies>(to, from, at + 192));
    }
    // The register after all of it.
    [[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] std::uint64_t end() noexcept {
        d = fold_on<64>(fold_on<64>(fold_on<64>(a, b), c), d);
        alignas(64) std::byte parts[64];
        _mm512_store_si512(parts, d);
        __m128i rest = load_16(parts);
        for (std::size_t i = 16; i < sizeof parts; i += 16) {
            rest = _mm_xor_si128(fold<16>(rest), load_16(parts + i));
        }
        return past_16(rest);
    }
};

constexpr std::size_t folds_are_worth_it = 1024;

template <Copies copies>
[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] inline std::uint32_t proceed_by_folds(
    std::uint32_t state, std::byte* to, const std::byte* from, std::size_t bytes) {
    constexpr std::size_t step = Folded<copies>::step;
    std::size_t at = 0;
    if (bytes >= folds_are_worth_it) {
        Folded<copies> folded;
        folded.begin(state, to, from);
        for (at = step; bytes - at >= step; at += step) folded.go_on(to, from, at);
        state = static_cast<std::uint32_t>(folded.end());
        // Wide registers that are in use would be saved whenever another process runs.
        _mm256_zeroupper();
    }
    if constexpr (copies == Copies::yes) std::memcpy(to + at, from + at, bytes - at);
    return continue_by_lanes(state, from + at, bytes - at);
}

// How many words of each lane are taken while 256 bytes are folded: a word has one of 15 cycles,
// the multiplications need 16.
constexpr std::size_t words_per_fold = 5;
constexpr std::size_t folds_max = 43;  // a piece is just below 16 KiB then
constexpr std::size_t mixed_step =
    Folded<Copies::no>::step + 3 * words_per_fold * sizeof(std::uint64_t);
constexpr std::size_t mixed_bytes_max = folds_max * mixed_step;
// Below, what its code and constants take, which are in no cache between system calls, is more than
// what it saves: a read of 4 KiB takes as long with it as without.
constexpr std::size_t mixed_is_worth_it = 8192;

// A folded part in front and three lanes behind it, which take the same time.
struct MixedPiece {
    // at_most: from mixed_is_worth_it to mixed_bytes_max.
    explicit MixedPiece(std::size_t at_most) noexcept
        : folded_bytes((at_most + mixed_step - 1) / mixed_step * Folded<Copies::no>::step),
          lane_words((at_most - folded_bytes) / (3 * sizeof(std::uint64_t))) {}
    std::size_t lane_bytes() const noexcept { return lane_words * sizeof(std::uint64_t); }
    std::size_t bytes() const noexcept { return folded_bytes + 3 * lane_bytes(); }

    std::size_t folded_bytes;
    std::size_t lane_words;  // of each
};

// What moves a register past so many words: see past_zeros().
constexpr auto factor_of_words = [] {
    std::array<std::uint32_t, folds_max * words_per_fold + 1> factors{};
    std::uint32_t factor = power_of_x(64 - 33);
    for (std::size_t words = 1; words < factors.size(); ++words) {
        factors[words] = factor;
        for (int i = 0; i < 64; ++i) factor = times_x(factor);
    }
    return factors;
}();

[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] inline std::uint32_t proceed_by_both(
    std::uint32_t state, const std::byte* data, const MixedPiece& piece) {
    constexpr std::size_t step = Folded<Copies::no>::step;
    Folded<Copies::no> folded;
    folded.begin(state, nullptr, data);
    Lanes lanes{data + piece.folded_bytes, piece.lane_bytes()};
    std::size_t at = step;
    std::size_t words = 0;
    for (; at < piece.folded_bytes && words + words_per_fold <= piece.lane_words; at += step) {
        folded.go_on(nullptr, data, at);
        for (std::size_t i = 0; i < words_per_fold; ++i) lanes.go_on();
        words += words_per_fold;
    }
    for (; at < piece.folded_bytes; at += step) folded.go_on(nullptr, data, at);
    for (; words < piece.lane_words; ++words) lanes.go_on();
    const std::uint64_t before = folded.end();
    _mm256_zeroupper();
    return lanes.end(before, factor_of_words[piece.lane_words]);
}

}  // namespace

[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] std::uint32_t continue_by_folds(
    std::uint32_t state, const std::byte* data, std::size_t bytes) {
    return proceed_by_folds<Copies::no>(state, nullptr, data, bytes);
}

[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] std::uint32_t copy_by_folds(
    std::uint32_t state, std::byte* to, const std::byte* from, std::size_t bytes) {
    return proceed_by_folds<Copies::yes>(state, to, from, bytes);
}

[[gnu::target("avx512f,vpclmulqdq,sse4.2,pclmul")]] std::uint32_t continue_by_folds_and_lanes(
    std::uint32_t state, const std::byte* data, std::size_t bytes) {
    while (bytes >= mixed_is_worth_it) {
        const MixedPiece piece(std::min(bytes, mixed_bytes_max));
        state = proceed_by_both(state, data, piece);
        data += piece.bytes();
        bytes -= piece.bytes();
    }
    return proceed_by_folds<Copies::no>(state, nullptr, data, bytes);
}

}  // namespace rtrs::tcp::x86

#endif
