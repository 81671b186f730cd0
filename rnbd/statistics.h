// The statistics: what a server tells the client of a session about that session. Layout, parse,
// emit. They are our extension of RNBD; messages with tags carry them, as they do the catalog
// (rnbd/catalog.h). No I/O, no state. All integers are little-endian.
//
// STATISTICS, client to server, 8 bytes               tag: request
//    0  2  type 35      2  6  reserved
// STATISTICS_RSP, server to client, 104 bytes         tag: statistics
//    0  2  type 36      2  2  reserved
//    4  4  queue depth  8  4  requests now              12  4  reserved
//   16  8  reads       24  8  bytes read      32  8  writes       40  8  bytes written
//   48  8  other requests (flush, discard, write zeroes)
//   56  8  refused: not in order, out of range, not allowed
//   64  8  failed in the storage
//   72  8  late attempts that were refused
//   80  8  time in the storage, ns: not exceeded by half of the requests
//   88  8  not exceeded by 99 of 100 requests    96  8  the longest
#pragma once

#include <cstdint>
#include <expected>

#include "rnbd/messages.h"
#include "rtrs/base/bytes.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// Bits 63..32 of the tag; bits 31..0 are a number that the client chooses. Values below these are
// the catalog's (CatalogTag).
enum class StatisticsTag : std::uint32_t { request = 4, statistics = 5 };
constexpr std::uint64_t statistics_tag(StatisticsTag what, std::uint32_t number) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(what)} << 32 | number;
}
inline constexpr std::uint64_t statistics_tag_mask = 0xffff'ffff'0000'0000;

struct StatisticsRequest {
    static constexpr std::size_t wire_bytes = 8;

    // ERRORS: too_short, wrong_type.
    static std::expected<StatisticsRequest, ParseError> parse(Bytes data) noexcept;
    void emit(MutableBytes to) const noexcept;
};

struct StatisticsResponse {
    static constexpr std::size_t wire_bytes = 104;

    std::uint32_t queue_depth = 0;
    std::uint32_t in_flight = 0;
    std::uint64_t reads = 0;
    std::uint64_t read_bytes = 0;
    std::uint64_t writes = 0;
    std::uint64_t write_bytes = 0;
    std::uint64_t others = 0;
    std::uint64_t refused = 0;
    std::uint64_t storage_errors = 0;
    std::uint64_t stale = 0;
    rtrs::Duration p50{};
    rtrs::Duration p99{};
    rtrs::Duration longest{};

    // ERRORS: too_short, wrong_type.
    static std::expected<StatisticsResponse, ParseError> parse(Bytes data) noexcept;
    void emit(MutableBytes to) const noexcept;

    friend bool operator==(const StatisticsResponse&, const StatisticsResponse&) = default;
};

}  // namespace rnbd
