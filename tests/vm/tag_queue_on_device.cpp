// A tag-matching queue on each of this machine's RDMA devices: where the device reports the
// capability, tags are added, removed and the counts compared on it, without a connection;
// elsewhere the queue is refused and leaves nothing on the device.
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rtrs/fabric/verbs/tag_queue.h"

using namespace rtrs;
using verbs::TagQueue;

namespace {

struct Device {
    explicit Device(ibv_device* device)
        : name(ibv_get_device_name(device)), context(ibv_open_device(device)) {
        REQUIRE(context != nullptr);
        domain = ibv_alloc_pd(context);
        REQUIRE(domain != nullptr);
    }
    ~Device() {
        // Refused while something is left in it.
        CHECK(ibv_dealloc_pd(domain) == 0);
        CHECK(ibv_close_device(context) == 0);
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    std::string name;
    ibv_context* context;
    ibv_pd* domain = nullptr;
};

std::vector<std::unique_ptr<Device>> devices() {
    std::vector<std::unique_ptr<Device>> found;
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    for (int i = 0; list != nullptr && i < count; ++i) {
        found.push_back(std::make_unique<Device>(list[i]));
    }
    if (list != nullptr) ibv_free_device_list(list);
    if (found.empty()) {
        std::cerr << "skipped: no RDMA device\n";
        std::exit(77);
    }
    return found;
}

struct Log final : TagDeviceHandler, verbs::TagQueueOwner {
    void on_device_match(std::uint32_t, const TagMessage&) override { text += " match"; }
    void on_device_unexpected(const TagMessage&) override { text += " unexpected"; }
    void on_device_operation(const TagOperationResult& result) override {
        text += result.kind == TagOperation::Kind::add      ? " added"
                : result.kind == TagOperation::Kind::remove ? " removed"
                                                            : " synced";
        text += std::to_string(result.slot) + (result.done ? "" : " late") +
                (result.sync_required ? " differ" : "");
        ++reports;
    }
    void on_untagged(std::uint32_t, Bytes) override { text += " untagged"; }
    void on_tag_queue_broken(const char* what) override {
        text += std::string(" broken: ") + what;
        broken = true;
    }
    std::string text;
    unsigned reports = 0;
    bool broken = false;
};

// Fills and empties the device's list, twice: all handles are used again.
void use(TagQueue& queue, Log& log) {
    const auto wait_for = [&](unsigned reports) {
        for (int i = 0; i < 30000 && log.reports < reports && !log.broken; ++i) {
            if (!queue.poll()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    };
    std::string expected;
    unsigned reports = 0;
    for (int round = 0; round < 2; ++round) {
        for (std::uint32_t slot = 0; slot < queue.capacity(); ++slot) {
            queue.post({.kind = TagOperation::Kind::add,
                        .slot = slot,
                        .receive = {.pattern = {.tag = 100 + slot}}});
            expected += " added" + std::to_string(slot);
        }
        queue.post({.kind = TagOperation::Kind::sync});
        expected += " synced0";
        for (std::uint32_t slot = 0; slot < queue.capacity(); ++slot) {
            queue.post({.kind = TagOperation::Kind::remove, .slot = slot});
            expected += " removed" + std::to_string(slot);
        }
        reports += 2 * queue.capacity() + 1;
        wait_for(reports);
    }
    CHECK(log.text == expected);
}

}  // namespace

TEST_CASE("a tag-matching queue on this machine's devices") {
    for (const auto& device : devices()) {
        const verbs::TagCapability capability = verbs::tag_capability(device->context);
        std::cout << device->name << ": " << capability.tags << " tags, " << capability.operations
                  << " operations\n";
        Log log;
        const auto queue =
            TagQueue::create(device->domain, nullptr, {.tags = 8, .receives = 4}, log);
        if (!capability) {
            REQUIRE_FALSE(queue);
            CHECK(queue.error() == std::errc::operation_not_supported);
            continue;
        }
        REQUIRE(queue);
        (*queue)->set_handler(log);
        use(**queue, log);
    }
}
