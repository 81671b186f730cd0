#include "tests/unit/tag/sim_device.h"

#include <algorithm>
#include <array>

#include "rtrs/base/assert.h"

namespace rtrs {

SimTagDevice::SimTagDevice(std::uint32_t capacity, std::uint64_t seed, Flaw flaw)
    : capacity_(capacity), random_(seed), flaw_(flaw) {}

bool SimTagDevice::step() {
    using Step = void (SimTagDevice::*)();
    std::array<Step, 4> possible{};
    std::size_t count = 0;
    if (!operations_.empty()) possible[count++] = &SimTagDevice::operate;
    if (!wire_.empty()) possible[count++] = &SimTagDevice::arrive;
    if (!reports_.empty()) possible[count++] = &SimTagDevice::report_message;
    if (!results_.empty()) possible[count++] = &SimTagDevice::report_operation;
    if (count == 0) return false;
    (this->*possible[random_.below(count)])();
    return true;
}

void SimTagDevice::operate() {
    const TagOperation operation = operations_.front();
    operations_.pop_front();
    const bool agreed = operation.handled == counted_;
    TagOperationResult result{.kind = operation.kind,
                              .slot = operation.slot,
                              .handled = operation.handled,
                              .sync_required = !agreed};
    if (operation.kind == TagOperation::Kind::add) {
        RTRS_ASSERT(entries_.size() < capacity_);
        entries_.push_back({operation.slot, operation.receive, flaw_ == Flaw::never_sleeps});
    }
    if (operation.kind == TagOperation::Kind::remove) {
        result.done = std::erase_if(entries_, [&](const Entry& entry) {
                          return entry.slot == operation.slot;
                      }) != 0;
    }
    if (agreed) {
        for (Entry& entry : entries_) entry.awake = true;
    }
    results_.push_back(result);
}

void SimTagDevice::arrive() {
    const TagMessage message = wire_.front();
    wire_.pop_front();
    const auto entry = std::ranges::find_if(entries_, [&](const Entry& one) {
        return one.awake && one.receive.pattern.matches(message.tag);
    });
    if (entry == entries_.end()) {
        ++counted_;
        reports_.push_back({.kind = Report::Kind::unexpected, .message = message});
        return;
    }
    reports_.push_back({.kind = Report::Kind::match, .slot = entry->slot, .message = message});
    entries_.erase(entry);
}

void SimTagDevice::report_message() {
    const Report report = reports_.front();
    reports_.pop_front();
    if (report.kind == Report::Kind::match) {
        handler_->on_device_match(report.slot, report.message);
    } else {
        handler_->on_device_unexpected(report.message);
    }
}

void SimTagDevice::report_operation() {
    const TagOperationResult result = results_.front();
    results_.pop_front();
    handler_->on_device_operation(result);
}

}  // namespace rtrs
