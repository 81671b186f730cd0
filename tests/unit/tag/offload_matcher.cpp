// The rules of rtrs/tag/offload_matcher.h with a device that keeps nothing; random.cpp has the
// simulated one.
#include "rtrs/tag/offload_matcher.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace rtrs;

namespace {

struct PlayedDevice final : TagDevice {
    explicit PlayedDevice(std::uint32_t its_capacity) : its_capacity_(its_capacity) {}
    TagDevice* get() { return this; }
    void set_handler(TagDeviceHandler& its_handler) { handler = &its_handler; }
    std::uint32_t capacity() const noexcept override { return its_capacity_; }
    void post(const TagOperation& operation) override {
        switch (operation.kind) {
            case TagOperation::Kind::add:
                log += " add" + std::to_string(operation.receive.pattern.tag);
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
    void unexpected(const TagMessage& message) { handler->on_device_unexpected(message); }
    void match(std::uint32_t slot, const TagMessage& message) {
        handler->on_device_match(slot, message);
    }
    void done(bool sync_required, bool done) {
        const TagOperation operation = posted.at(reported++);
        handler->on_device_operation({.kind = operation.kind,
                                      .slot = operation.slot,
                                      .handled = operation.handled,
                                      .done = done,
                                      .sync_required = sync_required});
    }

    std::uint32_t its_capacity_;
    TagDeviceHandler* handler = nullptr;
    std::string log;
    std::vector<TagOperation> posted;
    std::size_t reported = 0;
};

}  // namespace

#include "tests/unit/tag/offload_rules.h"

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
