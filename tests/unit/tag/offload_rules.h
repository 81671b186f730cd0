// The rules of the hand-over between software and a tag-matching device, step by step. Includers
// have defined PlayedDevice, a device that the test plays itself:
//
//   PlayedDevice(capacity), get() (the TagDevice), set_handler(), and log: " add1/0 remove/0
//   sync/1", each operation as it was posted, with its tag if it has one and its count;
//   unexpected(message), match(slot, message), done(sync_required, done): it reports that.
#include <catch2/catch.hpp>
#include <string>

#include "rtrs/tag/offload_matcher.h"

namespace {

using namespace rtrs;

struct Side final : TagMatchHandler {
    explicit Side(std::uint32_t capacity) : device(capacity), matcher({}, device.get(), *this) {
        device.set_handler(matcher);
    }
    void on_match(const TagMatch& match) override {
        log += " " + std::to_string(match.message.number) + ">" +
               std::to_string(match.receive.context);
    }
    void on_cancelled(ReceiveId, std::uint64_t context) override {
        log += " cancelled" + std::to_string(context);
    }
    void on_arrival(const TagMessage& message, TagArrival kind) override {
        log += " " + std::to_string(message.number) +
               (kind == TagArrival::unexpected ? ">waits" : ">dropped");
    }
    void on_device_broken(const char* what) override { log += std::string(" broken: ") + what; }

    ReceiveId post(Tag tag) {
        return *matcher.post({.pattern = {.tag = tag}, .capacity_bytes = 64, .context = ++posts});
    }
    void unexpected(Tag tag) { device.unexpected({.number = ++messages, .tag = tag, .bytes = 1}); }
    void match(std::uint32_t slot, Tag tag) {
        device.match(slot, {.number = ++messages, .tag = tag, .bytes = 1});
    }
    // The oldest operation that was not reported yet.
    void done(bool sync_required = false, bool done = true) { device.done(sync_required, done); }

    PlayedDevice device;
    std::string log;
    OffloadMatcher matcher;
    std::uint64_t posts = 0;
    std::uint64_t messages = 0;
};

}  // namespace

TEST_CASE("tag offload: H1 the device holds a prefix of what is posted") {
    Side side(2);
    side.post(1);
    side.post(2);
    side.post(3);
    side.post(4);
    CHECK(side.device.log == " add1/0 add2/0");
    side.done();
    side.done();
    side.match(1, 2);
    CHECK(side.log == " 1>2");
    CHECK(side.device.log == " add1/0 add2/0 add3/0");
}

TEST_CASE("tag offload: H2 after an unexpected message nothing is given until both agree") {
    Side side(4);
    side.unexpected(9);
    CHECK(side.log == " 1>waits");
    side.post(1);
    CHECK(side.device.log == " sync/1");
    SECTION("they agree") {
        side.done();
        CHECK(side.device.log == " sync/1 add1/1");
    }
    SECTION("the device has counted another one") {
        side.done(true);
        CHECK(side.device.log == " sync/1");
        side.unexpected(8);
        CHECK(side.device.log == " sync/1 sync/2");
        side.done();
        CHECK(side.device.log == " sync/1 sync/2 add1/2");
    }
    SECTION("the next one comes before the answer") {
        side.unexpected(8);
        side.done(true);
        CHECK(side.device.log == " sync/1 sync/2");
        side.done();
        CHECK(side.device.log == " sync/1 sync/2 add1/2");
    }
}

TEST_CASE("tag offload: H2 a tag that crossed an unexpected message stops the giving") {
    Side side(4);
    side.post(1);
    side.done(true);
    side.post(2);
    CHECK(side.device.log == " add1/0");
    side.unexpected(9);
    side.done();
    CHECK(side.device.log == " add1/0 sync/1 add2/1");
}

TEST_CASE(
    "tag offload: H3 a receive that the software takes leaves the device ahead of the count") {
    Side side(4);
    side.post(1);
    side.unexpected(1);
    CHECK(side.log == " 1>1");
    CHECK(side.device.log == " add1/0 remove/0 sync/1");
    side.done(true);
    side.done(true);
    side.done();
    CHECK(side.matcher.lists().posted() == 0);
    SECTION("its place is free again") {
        for (Tag tag = 2; tag <= 5; ++tag) side.post(tag);
        CHECK(side.device.log == " add1/0 remove/0 sync/1 add2/1 add3/1 add4/1 add5/1");
    }
}

TEST_CASE("tag offload: H4 a cancel ends as cancelled or as matched") {
    Side side(4);
    const ReceiveId id = side.post(1);
    side.done();
    CHECK(side.matcher.cancel(id) == CancelResult::pending);
    CHECK(side.matcher.cancel(id) == CancelResult::pending);
    CHECK(side.device.log == " add1/0 remove/0");
    SECTION("it was in time") {
        side.done();
        CHECK(side.log == " cancelled1");
        CHECK(side.matcher.cancel(id) == CancelResult::unknown);
    }
    SECTION("the device was faster") {
        side.match(0, 1);
        side.done(false, false);
        CHECK(side.log == " 1>1");
    }
    SECTION("the device was faster, and says so first") {
        side.done(false, false);
        side.match(0, 1);
        CHECK(side.log == " 1>1");
    }
    SECTION("the software passes it over") {
        side.unexpected(1);
        CHECK(side.log == " 1>waits");
        side.done();
        CHECK(side.log == " 1>waits cancelled1");
    }
}

TEST_CASE("tag offload: what the software holds is cancelled at once") {
    Side side(1);
    side.post(1);
    const ReceiveId id = side.post(2);
    CHECK(side.matcher.cancel(id) == CancelResult::cancelled);
    CHECK(side.device.log == " add1/0");
}
