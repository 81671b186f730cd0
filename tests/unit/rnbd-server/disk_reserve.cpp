// What is kept back while a disk has enough to do.
#include "rnbd-server/storage/disk_reserve.h"

#include <catch2/catch.hpp>
#include <deque>
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
    // There are 31 left at the disk.
    for (int i = 0; i < 15; ++i) CHECK(listed(reserve.ended(requests.all[2])).empty());
    CHECK(reserve.keeps(requests.make()));
    CHECK(listed(reserve.ended(requests.all[2])).size() == 1);
    for (int i = 0; i < 16; ++i) CHECK(listed(reserve.ended(requests.all[2])).empty());
    CHECK(!reserve.keeps(requests.make()));
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
