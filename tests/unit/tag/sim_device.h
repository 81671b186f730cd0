// A tag-matching device for tests: it keeps the promises of device.h and interleaves operations,
// messages and reports in an order drawn from a seed.
//
// OWNER, THREAD: the test.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "rtrs/base/random.h"
#include "rtrs/tag/device.h"

namespace rtrs {

class SimTagDevice final : public TagDevice {
  public:
    // A promise that a test can have broken, to see that it matters.
    enum class Flaw : std::uint8_t {
        none,
        never_sleeps,  // D3: tags are awake at once
    };

    SimTagDevice(std::uint32_t capacity, std::uint64_t seed, Flaw flaw = Flaw::none);

    void set_handler(TagDeviceHandler& handler) noexcept { handler_ = &handler; }
    std::uint32_t capacity() const noexcept override { return capacity_; }
    void post(const TagOperation& operation) override { operations_.push_back(operation); }

    // Puts a message on the wire, behind all that was sent before.
    void send(const TagMessage& message) { wire_.push_back(message); }
    // Lets one thing happen: an operation, an arrival, or a report. False: nothing is left.
    bool step();
    // Lets everything happen that is under way.
    void settle() {
        while (step()) {
        }
    }

  private:
    struct Entry {
        std::uint32_t slot = 0;
        TagReceive receive{};
        bool awake = false;
    };
    struct Report {
        enum class Kind : std::uint8_t { match, unexpected } kind{};
        std::uint32_t slot = 0;
        TagMessage message{};
    };

    void operate();
    void arrive();
    void report_message();
    void report_operation();

    std::uint32_t capacity_;
    Random random_;
    Flaw flaw_;
    TagDeviceHandler* handler_ = nullptr;
    std::uint32_t counted_ = 0;
    std::vector<Entry> entries_;  // in the order of adding
    std::deque<TagOperation> operations_;
    std::deque<TagMessage> wire_;
    std::deque<Report> reports_;
    std::deque<TagOperationResult> results_;
};

}  // namespace rtrs
