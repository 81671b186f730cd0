// What is kept back while a disk has enough to do.
#include "rnbd-server/storage/disk_reserve.h"

#include <catch2/catch.hpp>
#include <deque>
#include <utility>
#include <vector>

using namespace rnbd;

namespace {

struct Requests {
    BlockRequest& make(BlockOperation operation = BlockOperation::read,
                       std::uint64_t bytes = 4096) {
        BlockRequest& made = all.emplace_back([](BlockRequest&, std::error_code) {});
        made.operation = operation;
        made.bytes = bytes;
        return made;
    }
    std::deque<BlockRequest> all;
};

std::vector<BlockRequest*> listed(BlockRequest* list) {
    std::vector<BlockRequest*> found;
    for (; list != nullptr; list = list->next) found.push_back(list);
    return found;
}

}  // namespace

TEST_CASE("disk reserve: what comes when the disk has enough is kept until it ends one") {
    DiskReserve reserve;
    Requests requests;
    for (std::uint32_t i = 0; i < DiskReserve::at_disk_min; ++i) {
        CHECK(!reserve.keeps(requests.make()));
    }
    std::vector<BlockRequest*> kept;
    for (std::uint32_t i = 0; i < DiskReserve::kept_max; ++i) {
        BlockRequest& more = requests.make(
            i % 2 == 0 ? BlockOperation::read : BlockOperation::write, DiskReserve::bytes_max);
        CHECK(reserve.keeps(more));
        kept.push_back(&more);
    }
    CHECK(!reserve.keeps(requests.make()));  // no more than so many
    CHECK(listed(reserve.ended(requests.all[0])) == kept);
    CHECK(listed(reserve.ended(requests.all[1])).empty());
}

TEST_CASE("disk reserve: 7 of 16 that there were at the last end are kept") {
    DiskReserve reserve;
    Requests requests;
    // As many as come, given to the disk and kept; then all of them end, together.
    const auto round = [&](std::uint32_t come) {
        std::uint32_t kept = 0;
        for (std::uint32_t i = 0; i < come; ++i) kept += reserve.keeps(requests.make()) ? 1 : 0;
        CHECK(listed(reserve.ended(requests.all[0])).size() == kept);
        for (std::uint32_t at_disk = come; at_disk > 1; --at_disk) {
            CHECK(listed(reserve.ended(requests.all[0])).empty());
        }
        return kept;
    };
    CHECK(round(32) == 16);  // of 32 before it, it knows nothing
    CHECK(round(32) == 14);
    CHECK(round(32) == 14);
    CHECK(round(16) == 0);  // less than 9 of 16 that there were
    CHECK(round(16) == 7);
    CHECK(round(6) == 0);
    CHECK(round(9) == 1);
    CHECK(round(128) == DiskReserve::kept_max);
    CHECK(round(128) == DiskReserve::kept_max);
}

TEST_CASE("disk reserve: a disk that ends one by one has 9 of 16 all the time") {
    DiskReserve reserve;
    Requests requests;
    std::uint32_t at_disk = 0;
    std::uint32_t kept = 0;
    const auto comes = [&] {
        if (reserve.keeps(requests.make())) {
            ++kept;
        } else {
            ++at_disk;
        }
    };
    for (int i = 0; i < 32; ++i) comes();
    for (int i = 0; i < 200; ++i) {
        CHECK(listed(reserve.ended(requests.all[0])).size() == kept);
        at_disk += std::exchange(kept, 0) - 1;
        // The program, which has two to make at times, and none at others.
        for (int more = i % 2 * 2; more > 0; --more) comes();
        CHECK(at_disk + kept >= 31);
        CHECK(at_disk >= 17);
    }
}

TEST_CASE("disk reserve: what is large or moves nothing neither waits nor counts") {
    DiskReserve reserve;
    Requests requests;
    BlockRequest& large = requests.make(BlockOperation::write, DiskReserve::bytes_max + 512);
    BlockRequest& flush = requests.make(BlockOperation::flush, 0);
    BlockRequest& discard = requests.make(BlockOperation::discard, 4096);
    for (int i = 0; i < 40; ++i) {
        CHECK(!reserve.keeps(large));
        CHECK(!reserve.keeps(flush));
        CHECK(!reserve.keeps(discard));
    }
    for (std::uint32_t i = 0; i < DiskReserve::at_disk_min; ++i) {
        CHECK(!reserve.keeps(requests.make()));
    }
    CHECK(!reserve.keeps(large));
    BlockRequest& small = requests.make();
    CHECK(reserve.keeps(small));
    for (BlockRequest* other : {&large, &flush, &discard}) {
        CHECK(listed(reserve.ended(*other)).empty());
    }
    CHECK(listed(reserve.ended(requests.all[3])) == std::vector{&small});
}
