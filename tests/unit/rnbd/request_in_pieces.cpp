#include "rnbd/request_in_pieces.h"

#include <catch2/catch.hpp>

namespace rnbd {
namespace {

using Operation = VolumeOperation;
constexpr std::uint32_t io_bytes = 128 << 10;
const std::error_code none;
const std::error_code lost = rtrs::from_errno(EIO);

RequestInPieces begun(Operation operation, bool forced) {
    RequestInPieces request;
    request.begin(operation, {.forced = forced});
    return request;
}

TEST_CASE("request in pieces: a piece is whole blocks, as the volume takes them") {
    VolumeGeometry geometry{.logical_block_bytes = 4096};
    CHECK(piece_bytes_max(Operation::read, geometry, io_bytes) == io_bytes);
    CHECK(piece_bytes_max(Operation::write, geometry, io_bytes + 512) == io_bytes);
    CHECK(piece_bytes_max(Operation::extents, geometry, io_bytes) == 1u << 31);
    // What the server has none of is written.
    CHECK(piece_bytes_max(Operation::write_zeroes, geometry, io_bytes) == io_bytes);
    CHECK(piece_bytes_max(Operation::discard, geometry, io_bytes) == 4096);
    geometry.discard_bytes_max = 1ull << 40;
    geometry.write_zeroes_bytes_max = 10000;
    CHECK(piece_bytes_max(Operation::discard, geometry, io_bytes) == 1u << 31);
    CHECK(piece_bytes_max(Operation::write_zeroes, geometry, io_bytes) == 8192);
}

TEST_CASE("request in pieces: a piece is what the volume takes now") {
    const VolumeGeometry has{.write_zeroes_bytes_max = 1 << 20};
    const VolumeGeometry has_not{};
    RequestInPieces zeroes;
    zeroes.begin(Operation::write_zeroes, {.no_unmap = true, .fast_only = true});
    const VolumeIo asked = zeroes.piece(has);
    CHECK(asked.operation == Operation::write_zeroes);
    CHECK(asked.no_unmap);
    CHECK(asked.fast_only);
    const VolumeIo written = zeroes.piece(has_not);
    CHECK(written.operation == Operation::write);
    CHECK(!written.no_unmap);
    CHECK(!written.fast_only);
    CHECK(!begun(Operation::write_zeroes, false).piece(has).fast_only);
    for (const Operation operation :
         {Operation::read, Operation::write, Operation::discard, Operation::extents}) {
        CHECK(begun(operation, false).piece(has_not).operation == operation);
    }
}

TEST_CASE("request in pieces: what a volume that has come back cannot is written, or is moot") {
    const auto unsupported = rtrs::from_errno(EOPNOTSUPP);
    const auto failed = rtrs::from_errno(EIO);
    RequestInPieces fast;
    fast.begin(Operation::write_zeroes, {.fast_only = true});
    CHECK(!fast.zeroes_are_due(Operation::write_zeroes, unsupported));
    const auto zeroes = begun(Operation::write_zeroes, false);
    CHECK(zeroes.zeroes_are_due(Operation::write_zeroes, unsupported));
    CHECK(!zeroes.zeroes_are_due(Operation::write_zeroes, failed));
    CHECK(!zeroes.zeroes_are_due(Operation::write_zeroes, none));
    CHECK(!zeroes.zeroes_are_due(Operation::write, unsupported));
    CHECK(RequestInPieces::is_moot(Operation::discard, unsupported));
    CHECK(!RequestInPieces::is_moot(Operation::discard, failed));
    CHECK(!RequestInPieces::is_moot(Operation::write_zeroes, unsupported));
}

TEST_CASE("request in pieces: a flush of its own is told from one behind others") {
    CHECK(begun(Operation::flush, false).flush().operation == Operation::flush);
    CHECK(!begun(Operation::flush, false).flush().behind);
    CHECK(begun(Operation::write, true).flush().behind);
}

TEST_CASE("request in pieces: FUA goes with plain writes to volumes that take it") {
    const VolumeGeometry takes{.force_unit_access = true};
    const VolumeGeometry does_not{};
    for (const Operation operation :
         {Operation::write, Operation::discard, Operation::write_zeroes}) {
        CAPTURE(static_cast<int>(operation));
        const bool alone = operation == Operation::write;
        auto forced = begun(operation, true);
        CHECK(forced.piece(takes).force_unit_access == alone);
        CHECK(forced.needs_flush(takes) == !alone);
        auto elsewhere = begun(operation, true);
        CHECK(!elsewhere.piece(does_not).force_unit_access);
        CHECK(elsewhere.needs_flush(does_not));
        auto plain = begun(operation, false);
        CHECK(!plain.piece(takes).force_unit_access);
        CHECK(!plain.needs_flush(takes));
    }
    auto read = begun(Operation::read, true);
    CHECK(!read.piece(takes).force_unit_access);
    CHECK(!read.needs_flush(does_not));
}

TEST_CASE("request in pieces: a volume that takes FUA later, or no longer, is flushed") {
    const VolumeGeometry takes{.force_unit_access = true};
    const VolumeGeometry does_not{};
    auto later = begun(Operation::write, true);
    CHECK(!later.piece(does_not).force_unit_access);
    CHECK(!later.piece(takes).force_unit_access);
    CHECK(later.needs_flush(takes));
    auto no_longer = begun(Operation::write, true);
    CHECK(no_longer.piece(takes).force_unit_access);
    CHECK(no_longer.needs_flush(does_not));
}

TEST_CASE("request in pieces: a cache that is lost between two of them is not passed over") {
    auto forced = begun(Operation::discard, true);
    CHECK(forced.answered(Operation::discard, none, 4) == none);
    CHECK(forced.answered(Operation::discard, none, 5) == none);
    CHECK(forced.answered(Operation::flush, none, 5) == lost);
    CHECK(!forced.lost_in_part(5));

    auto plain = begun(Operation::write, false);
    CHECK(plain.answered(Operation::write, none, 4) == none);
    CHECK(!plain.lost_in_part(4));
    CHECK(plain.answered(Operation::write, none, 5) == none);
    CHECK(plain.lost_in_part(5));

    auto before = begun(Operation::write, true);
    CHECK(before.answered(Operation::write, none, 5) == none);
    CHECK(before.answered(Operation::flush, none, 5) == none);

    auto read = begun(Operation::read, false);
    CHECK(read.answered(Operation::read, none, 4) == none);
    CHECK(!read.lost_in_part(5));

    const auto failed = rtrs::from_errno(ENOSPC);
    CHECK(forced.answered(Operation::flush, failed, 6) == failed);
}

TEST_CASE("request in pieces: a flush by itself tells nothing of what was lost before it") {
    auto flush = begun(Operation::flush, false);
    CHECK(flush.answered(Operation::flush, none, 7) == none);
    CHECK(!flush.lost_in_part(7));
    CHECK(!flush.needs_flush({}));
}

TEST_CASE("request in pieces: it begins anew") {
    auto request = begun(Operation::write, true);
    CHECK(request.answered(Operation::write, none, 4) == none);
    CHECK(!request.piece({}).force_unit_access);
    request.begin(Operation::write, {.forced = true});
    CHECK(request.piece({.force_unit_access = true}).force_unit_access);
    CHECK(request.answered(Operation::flush, none, 9) == none);
}

}  // namespace
}  // namespace rnbd
