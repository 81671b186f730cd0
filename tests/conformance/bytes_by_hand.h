// RTRS and RNBD messages as the checklist's offsets say, put together and taken apart one integer
// at a time. Nothing of rtrs/wire or rnbd/messages is used: a mistake there must not be repeated
// here. Offsets: docs/reference/wire-rtrs.md, wire-rnbd.md; written from the kernel's layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace conformance {

using Octets = std::vector<std::uint8_t>;

// Little-endian, anywhere in a message.
inline void put(Octets& to, std::size_t at, std::uint64_t value, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) to[at + i] = static_cast<std::uint8_t>(value >> 8 * i);
}
// 0 beyond the end.
inline std::uint64_t take(const Octets& from, std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes && at + i < from.size(); ++i) {
        value |= std::uint64_t{from[at + i]} << 8 * i;
    }
    return value;
}

// --- Connection request, 56 bytes.

struct Greeting {
    std::uint16_t magic = 0x1bbd;
    std::uint16_t version = 0x0200;
    std::uint16_t cid = 0;
    std::uint16_t cid_num = 1;
    std::uint16_t recon_cnt = 1;
    Octets sess_uuid;   // of the path
    Octets paths_uuid;  // of the session
    std::uint8_t flags = 1;

    Octets octets() const {
        Octets to(56, 0);
        put(to, 2, magic, 2);
        put(to, 4, version, 2);
        put(to, 6, cid, 2);
        put(to, 8, cid_num, 2);
        put(to, 10, recon_cnt, 2);
        for (std::size_t i = 0; i < 16; ++i) to[12 + i] = sess_uuid[i];
        for (std::size_t i = 0; i < 16; ++i) to[28 + i] = paths_uuid[i];
        to[44] = flags;
        return to;
    }
    static Greeting of(const Octets& from) {
        return {.magic = static_cast<std::uint16_t>(take(from, 2, 2)),
                .version = static_cast<std::uint16_t>(take(from, 4, 2)),
                .cid = static_cast<std::uint16_t>(take(from, 6, 2)),
                .cid_num = static_cast<std::uint16_t>(take(from, 8, 2)),
                .recon_cnt = static_cast<std::uint16_t>(take(from, 10, 2)),
                .sess_uuid = Octets(from.begin() + 12, from.begin() + 28),
                .paths_uuid = Octets(from.begin() + 28, from.begin() + 44),
                .flags = from[44]};
    }
};

// --- Connection answer, 56 bytes, in accepts and rejects.

struct Welcome {
    std::uint16_t magic = 0x1bbd;
    std::uint16_t version = 0x0200;
    int error = 0;  // negative errno
    std::uint16_t queue_depth = 0;
    std::uint32_t max_io_bytes = 0;
    std::uint32_t max_header_bytes = 0;
    std::uint32_t flags = 0;  // 2: every answer brings a key

    static constexpr std::uint32_t new_rkey = 2;

    Octets octets() const {
        Octets to(56, 0);
        put(to, 0, magic, 2);
        put(to, 2, version, 2);
        put(to, 4, static_cast<std::uint16_t>(error), 2);
        put(to, 6, queue_depth, 2);
        put(to, 8, max_io_bytes, 4);
        put(to, 12, max_header_bytes, 4);
        put(to, 16, flags, 4);
        return to;
    }
    static Welcome of(const Octets& from) {
        return {.magic = static_cast<std::uint16_t>(take(from, 0, 2)),
                .version = static_cast<std::uint16_t>(take(from, 2, 2)),
                .error = static_cast<std::int16_t>(take(from, 4, 2)),
                .queue_depth = static_cast<std::uint16_t>(take(from, 6, 2)),
                .max_io_bytes = static_cast<std::uint32_t>(take(from, 8, 4)),
                .max_header_bytes = static_cast<std::uint32_t>(take(from, 12, 4)),
                .flags = static_cast<std::uint32_t>(take(from, 16, 4))};
    }
};

// --- Info exchange.

inline Octets info_request(const std::string& name, std::uint16_t type = 0) {
    Octets to(272, 0);
    put(to, 0, type, 2);
    for (std::size_t i = 0; i < name.size() && i < 255; ++i) {
        to[2 + i] = static_cast<std::uint8_t>(name[i]);
    }
    return to;
}

struct Region {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t bytes = 0;
};

inline Octets info_response(const std::vector<Region>& regions) {
    Octets to(8 + 16 * regions.size(), 0);
    put(to, 0, 1, 2);
    put(to, 2, regions.size(), 2);
    for (std::size_t i = 0; i < regions.size(); ++i) {
        put(to, 8 + 16 * i, regions[i].address, 8);
        put(to, 16 + 16 * i, regions[i].key, 4);
        put(to, 20 + 16 * i, regions[i].bytes, 4);
    }
    return to;
}

inline Region region_at(const Octets& from, std::size_t at) {
    return {take(from, at, 8), static_cast<std::uint32_t>(take(from, at + 8, 4)),
            static_cast<std::uint32_t>(take(from, at + 12, 4))};
}

// --- Immediates.

// C of the checklist: bits that a permit takes.
inline unsigned permit_bits(std::uint32_t queue_depth) {
    unsigned bits = 0;
    while ((1ull << bits) < queue_depth) ++bits;
    return bits;
}
inline std::uint32_t request_immediate(std::uint32_t queue_depth, std::uint32_t permit,
                                       std::uint32_t offset) {
    const unsigned shift = 28 - permit_bits(queue_depth);
    return (shift >= 28 ? 0 : permit << shift) | offset;
}
inline std::uint32_t permit_of(std::uint32_t queue_depth, std::uint32_t immediate) {
    return (immediate & 0x0fffffff) >> (28 - permit_bits(queue_depth));
}
inline std::uint32_t offset_of(std::uint32_t queue_depth, std::uint32_t immediate) {
    return immediate & ((1u << (28 - permit_bits(queue_depth))) - 1);
}
inline std::uint32_t answer_immediate(unsigned type, std::uint32_t permit, int error) {
    return type << 28 | static_cast<std::uint32_t>(error) << 19 | permit;
}
inline constexpr std::uint32_t heartbeat = 0x80000000;
inline constexpr std::uint32_t heartbeat_answer = 0x90000000;
// A type that no version knows.
inline constexpr std::uint32_t unknown_immediate = 0x70000000;

// --- Requests and key answers.

inline Octets write_message(std::size_t user_bytes, std::uint16_t type = 2) {
    Octets to(4, 0);
    put(to, 0, type, 2);
    put(to, 2, user_bytes, 2);
    return to;
}

struct ReadWords {
    std::uint16_t user_bytes = 0;
    bool invalidate = false;
    std::vector<Region> destinations{};
    std::uint16_t type = 3;

    Octets octets() const {
        Octets to(8 + 16 * destinations.size(), 0);
        put(to, 0, type, 2);
        put(to, 2, user_bytes, 2);
        put(to, 4, invalidate ? 1 : 0, 2);
        put(to, 6, destinations.size(), 2);
        for (std::size_t i = 0; i < destinations.size(); ++i) {
            put(to, 8 + 16 * i, destinations[i].address, 8);
            put(to, 16 + 16 * i, destinations[i].key, 4);
            put(to, 20 + 16 * i, destinations[i].bytes, 4);
        }
        return to;
    }
};

inline Octets key_answer(std::uint32_t permit, std::uint32_t key, std::uint16_t type = 4) {
    Octets to(8, 0);
    put(to, 0, type, 2);
    put(to, 2, permit, 2);
    put(to, 4, key, 4);
    return to;
}

// --- RNBD.

enum class BlockType : std::uint16_t {
    session_info = 0,
    session_info_answer = 1,
    open = 2,
    open_answer = 3,
    io = 4,
    close = 5,
};
// Bytes on the wire.
inline constexpr std::size_t session_info_bytes = 36, open_bytes = 264, open_answer_bytes = 56,
                             close_bytes = 8, io_bytes = 32;

enum class BlockOp : std::uint8_t {
    read = 0,
    write = 1,
    flush = 2,
    discard = 3,
    secure_erase = 4,
    write_zeroes = 5,
};
inline constexpr std::uint32_t flag_sync = 0x100, flag_fua = 0x200, flag_preflush = 0x400;

inline Octets session_info(unsigned version) {
    Octets to(session_info_bytes, 0);
    to[4] = static_cast<std::uint8_t>(version);
    return to;
}
inline Octets open_volume(const std::string& name, unsigned access_mode) {
    Octets to(open_bytes, 0);
    put(to, 0, 2, 2);
    to[4] = static_cast<std::uint8_t>(access_mode);
    for (std::size_t i = 0; i < name.size() && i < 255; ++i) {
        to[6 + i] = static_cast<std::uint8_t>(name[i]);
    }
    return to;
}
inline Octets close_volume(std::uint32_t device_id) {
    Octets to(close_bytes, 0);
    put(to, 0, 5, 2);
    put(to, 4, device_id, 4);
    return to;
}

struct BlockWords {
    std::uint32_t device_id = 0;
    std::uint64_t sector = 0;
    std::uint32_t rw = 0;
    std::uint32_t bytes = 0;  // bi_size
    std::uint16_t priority = 0;

    Octets octets() const {
        Octets to(io_bytes, 0);
        put(to, 0, 4, 2);
        put(to, 4, device_id, 4);
        put(to, 8, sector, 8);
        put(to, 16, rw, 4);
        put(to, 20, bytes, 4);
        put(to, 24, priority, 2);
        return to;
    }
    static BlockWords of(const Octets& from) {
        return {.device_id = static_cast<std::uint32_t>(take(from, 4, 4)),
                .sector = take(from, 8, 8),
                .rw = static_cast<std::uint32_t>(take(from, 16, 4)),
                .bytes = static_cast<std::uint32_t>(take(from, 20, 4)),
                .priority = static_cast<std::uint16_t>(take(from, 24, 2))};
    }
};

struct VolumeWords {
    std::uint16_t type = 3;
    std::uint32_t device_id = 0;
    std::uint64_t sectors = 0;
    std::uint32_t max_sectors = 0;
    std::uint32_t write_zeroes_sectors = 0;
    std::uint32_t discard_sectors = 0;
    std::uint32_t discard_granularity = 0;
    std::uint32_t discard_alignment = 0;
    std::uint16_t physical_block = 512;
    std::uint16_t logical_block = 512;
    std::uint16_t segments = 0;
    std::uint16_t secure_discard = 0;
    std::uint8_t cache_policy = 0;  // 1 FUA, 2 write back

    Octets octets() const {
        Octets to(open_answer_bytes, 0);
        put(to, 0, type, 2);
        put(to, 4, device_id, 4);
        put(to, 8, sectors, 8);
        put(to, 16, max_sectors, 4);
        put(to, 20, write_zeroes_sectors, 4);
        put(to, 24, discard_sectors, 4);
        put(to, 28, discard_granularity, 4);
        put(to, 32, discard_alignment, 4);
        put(to, 36, physical_block, 2);
        put(to, 38, logical_block, 2);
        put(to, 40, segments, 2);
        put(to, 42, secure_discard, 2);
        to[45] = cache_policy;
        return to;
    }
    static VolumeWords of(const Octets& from) {
        VolumeWords words;
        words.type = static_cast<std::uint16_t>(take(from, 0, 2));
        words.device_id = static_cast<std::uint32_t>(take(from, 4, 4));
        words.sectors = take(from, 8, 8);
        words.max_sectors = static_cast<std::uint32_t>(take(from, 16, 4));
        words.write_zeroes_sectors = static_cast<std::uint32_t>(take(from, 20, 4));
        words.discard_sectors = static_cast<std::uint32_t>(take(from, 24, 4));
        words.discard_granularity = static_cast<std::uint32_t>(take(from, 28, 4));
        words.physical_block = static_cast<std::uint16_t>(take(from, 36, 2));
        words.logical_block = static_cast<std::uint16_t>(take(from, 38, 2));
        words.secure_discard = static_cast<std::uint16_t>(take(from, 42, 2));
        words.cache_policy = static_cast<std::uint8_t>(take(from, 45, 1));
        return words;
    }
};

}  // namespace conformance
