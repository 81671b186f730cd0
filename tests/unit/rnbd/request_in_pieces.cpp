#include "rnbd/request_in_pieces.h"

#include <catch2/catch.hpp>

namespace rnbd {
namespace {

using Answer = RequestInPieces::Answer;
using Operation = VolumeOperation;
constexpr std::uint32_t io_bytes = 128 << 10;
const std::error_code none;
const std::error_code lost = rtrs::from_errno(EIO);

RequestInPieces begun(Operation operation, bool forced) {
    RequestInPieces request;
    request.begin(operation, forced);
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

TEST_CASE("request in pieces: FUA goes with plain writes to volumes that take it") {
    const VolumeGeometry takes{.force_unit_access = true};
    const VolumeGeometry does_not{};
    for (const Operation operation :
         {Operation::write, Operation::discard, Operation::write_zeroes}) {
        CAPTURE(static_cast<int>(operation));
        const bool alone = operation == Operation::write;
        auto forced = begun(operation, true);
        CHECK(forced.forces_piece(takes) == alone);
        CHECK(forced.needs_flush(takes) == !alone);
        auto elsewhere = begun(operation, true);
        CHECK(!elsewhere.forces_piece(does_not));
        CHECK(elsewhere.needs_flush(does_not));
        auto plain = begun(operation, false);
        CHECK(!plain.forces_piece(takes));
        CHECK(!plain.needs_flush(takes));
    }
    auto read = begun(Operation::read, true);
    CHECK(!read.forces_piece(takes));
    CHECK(!read.needs_flush(does_not));
}

TEST_CASE("request in pieces: a volume that takes FUA later, or no longer, is flushed") {
    const VolumeGeometry takes{.force_unit_access = true};
    const VolumeGeometry does_not{};
    auto later = begun(Operation::write, true);
    CHECK(!later.forces_piece(does_not));
    CHECK(!later.forces_piece(takes));
    CHECK(later.needs_flush(takes));
    auto no_longer = begun(Operation::write, true);
    CHECK(no_longer.forces_piece(takes));
    CHECK(no_longer.needs_flush(does_not));
}

TEST_CASE("request in pieces: a cache that is lost between two of them is not passed over") {
    auto forced = begun(Operation::discard, true);
    CHECK(forced.answered(Answer::piece, none, 4) == none);
    CHECK(forced.answered(Answer::piece, none, 5) == none);
    CHECK(forced.answered(Answer::flush_behind, none, 5) == lost);
    CHECK(!forced.lost_in_part(5));

    auto plain = begun(Operation::write, false);
    CHECK(plain.answered(Answer::piece, none, 4) == none);
    CHECK(!plain.lost_in_part(4));
    CHECK(plain.answered(Answer::piece, none, 5) == none);
    CHECK(plain.lost_in_part(5));

    auto before = begun(Operation::write, true);
    CHECK(before.answered(Answer::piece, none, 5) == none);
    CHECK(before.answered(Answer::flush_behind, none, 5) == none);

    auto read = begun(Operation::read, false);
    CHECK(read.answered(Answer::piece, none, 4) == none);
    CHECK(!read.lost_in_part(5));

    const auto failed = rtrs::from_errno(ENOSPC);
    CHECK(forced.answered(Answer::flush_behind, failed, 6) == failed);
}

TEST_CASE("request in pieces: a flush by itself tells nothing of what was lost before it") {
    auto flush = begun(Operation::flush, false);
    CHECK(flush.answered(Answer::flush_behind, none, 7) == none);
    CHECK(!flush.lost_in_part(7));
    CHECK(!flush.needs_flush({}));
}

TEST_CASE("request in pieces: it begins anew") {
    auto request = begun(Operation::write, true);
    CHECK(request.answered(Answer::piece, none, 4) == none);
    CHECK(!request.forces_piece({}));
    request.begin(Operation::write, true);
    CHECK(request.forces_piece({.force_unit_access = true}));
    CHECK(request.answered(Answer::flush_behind, none, 9) == none);
}

}  // namespace
}  // namespace rnbd
