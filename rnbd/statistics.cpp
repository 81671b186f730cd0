#include "rnbd/statistics.h"

#include <algorithm>
#include <limits>

#include "rnbd/message_frame.h"

namespace rnbd {
namespace {

using namespace rtrs;  // load_*, store_*

constexpr std::uint16_t request_type_code = 35;
constexpr std::uint16_t statistics_type_code = 36;

// A peer may send any value.
Duration duration(const std::byte* from) noexcept {
    constexpr std::uint64_t longest = std::numeric_limits<std::int64_t>::max();
    return Duration(static_cast<std::int64_t>(std::min(load_le64(from), longest)));
}

}  // namespace

std::expected<StatisticsRequest, ParseError> StatisticsRequest::parse(Bytes data) noexcept {
    const auto p = check_message(data, wire_bytes, request_type_code);
    if (!p) return std::unexpected(p.error());
    return StatisticsRequest{};
}

void StatisticsRequest::emit(MutableBytes to) const noexcept {
    begin_message(to, wire_bytes, request_type_code);
}

std::expected<StatisticsResponse, ParseError> StatisticsResponse::parse(Bytes data) noexcept {
    const auto p = check_message(data, wire_bytes, statistics_type_code);
    if (!p) return std::unexpected(p.error());
    return StatisticsResponse{.queue_depth = load_le32(*p + 4),
                              .in_flight = load_le32(*p + 8),
                              .reads = load_le64(*p + 16),
                              .read_bytes = load_le64(*p + 24),
                              .writes = load_le64(*p + 32),
                              .write_bytes = load_le64(*p + 40),
                              .others = load_le64(*p + 48),
                              .refused = load_le64(*p + 56),
                              .storage_errors = load_le64(*p + 64),
                              .stale = load_le64(*p + 72),
                              .p50 = duration(*p + 80),
                              .p99 = duration(*p + 88),
                              .longest = duration(*p + 96)};
}

void StatisticsResponse::emit(MutableBytes to) const noexcept {
    std::byte* const p = begin_message(to, wire_bytes, statistics_type_code);
    store_le32(p + 4, queue_depth);
    store_le32(p + 8, in_flight);
    std::byte* at = p + 16;
    const auto ns = [](rtrs::Duration time) { return static_cast<std::uint64_t>(time.count()); };
    for (const std::uint64_t value : {reads, read_bytes, writes, write_bytes, others, refused,
                                      storage_errors, stale, ns(p50), ns(p99), ns(longest)}) {
        store_le64(at, value);
        at += sizeof value;
    }
}

}  // namespace rnbd
