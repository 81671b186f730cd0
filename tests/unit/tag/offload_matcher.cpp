// The rules of the hand-over between software and a tag-matching device, step by step. A device
// that the test plays itself; random.cpp has the simulated one.
#include "rtrs/tag/offload_matcher.h"

#include <catch2/catch.hpp>
#include <string>

#include "rtrs/tag/sim_device.h"

using namespace rtrs;

namespace {

struct PlayedDevice final : TagDevice {
    explicit PlayedDevice(std::uint32_t its_capacity) : its_capacity_(its_capacity) {}
    std::uint32_t capacity() const noexcept override { return its_capacity_; }
    void post(const TagOperation& operation) override {
        switch (operation.kind) {
            case TagOperation::Kind::add:
                log += " add" + std::to_string(operation.receive.context);
                break;
            case TagOperation::Kind::remove:
                log += " remove";
                break;
            case TagOperation::Kind::sync:
                log += " sync";
                break;
        }
        log += "/" + std::to_string(operation.handled);
        posted.push_back(operation);
    }
    std::uint32_t its_capacity_;
    std::string log;
    std::vector<TagOperation> posted;
};

struct Side final : TagMatchHandler {
    explicit Side(std::uint32_t capacity) : device(capacity), matcher({}, &device, *this) {}
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
    void unexpected(Tag tag) {
        matcher.on_device_unexpected({.number = ++messages, .tag = tag, .bytes = 1});
    }
    void match(std::uint32_t slot, Tag tag) {
        matcher.on_device_match(slot, {.number = ++messages, .tag = tag, .bytes = 1});
    }
    // The oldest operation that was not reported yet.
    void done(bool sync_required = false, bool done = true) {
        const TagOperation operation = device.posted.at(reported++);
        matcher.on_device_operation({.kind = operation.kind,
                                     .slot = operation.slot,
                                     .handled = operation.handled,
                                     .done = done,
                                     .sync_required = sync_required});
    }

    PlayedDevice device;
    std::string log;
    OffloadMatcher matcher;
    std::uint64_t posts = 0;
    std::uint64_t messages = 0;
    std::size_t reported = 0;
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

TEST_CASE("tag offload: a device that breaks its promises is found out") {
    Side side(2);
    SECTION("a place that holds nothing") {
        side.match(1, 1);
        CHECK(side.log == " broken: a tag was matched that the device does not hold");
    }
    SECTION("another tag") {
        side.post(1);
        side.match(0, 2);
        CHECK(side.log == " broken: a tag was matched with the wrong message");
    }
    SECTION("a sleeping tag") {
        side.post(1);
        side.unexpected(1);
        side.done();
        side.done(false, false);
        CHECK(side.log == " 1>1 broken: a sleeping tag was matched");
    }
}

TEST_CASE("tag offload: a capacity of nothing leaves all to the software") {
    Side side(0);
    side.post(1);
    side.unexpected(1);
    side.unexpected(2);
    side.post(2);
    CHECK(side.log == " 1>1 2>waits 2>2");
    CHECK(side.device.log == " sync/1");
}
