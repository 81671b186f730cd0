// Tag matching split between a device, which holds a bounded prefix of the posted receives, and
// software, which holds the rest and every unexpected message.
//
// The rules of the hand-over (tests/model/tag_offload.pml is a model of it; it fails without each):
//   H1  The device holds a prefix: a receive is given to it only when all before it are there.
//   H2  After an unexpected message no receive is given to the device until both agree on how many
//       unexpected messages were handled: every operation names the number, the device compares.
//   H3  A message counts as handled only when the software has matched or queued it, and when a
//       receive that it took from the device's list is on its way out, ahead of the count.
//   H4  A receive whose cancelling is under way in the device is passed over by the software. It
//       ends as cancelled or as matched by the device, never both.
//
// Without a device everything is software: the same results, at once.
// OWNER: whoever moves the messages. THREAD: the owner's. Nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <expected>
#include <system_error>
#include <vector>

#include "rtrs/tag/device.h"
#include "rtrs/tag/matcher.h"

namespace rtrs {

class TagMatchHandler {
  public:
    // Also from inside post() and arrive().
    virtual void on_match(const TagMatch& match) = 0;
    // A cancel() that was pending has taken effect.
    virtual void on_cancelled(ReceiveId id, std::uint64_t context) = 0;
    // What the device did with a message that it gave to the software, unless it matched.
    virtual void on_arrival(const TagMessage& message, TagArrival kind) = 0;
    // The device broke a promise of device.h: do not use it any longer.
    virtual void on_device_broken(const char* what) = 0;

  protected:
    ~TagMatchHandler() = default;
};

enum class CancelResult : std::uint8_t {
    cancelled,
    pending,  // on_cancelled or on_match will follow
    unknown,  // not posted (any more)
};

class OffloadMatcher final : public TagDeviceHandler {
  public:
    // device: null without one; lives longer.
    OffloadMatcher(const TagLimits& limits, TagDevice* device, TagMatchHandler& handler);

    // ERRORS: as TagMatcher::post.
    std::expected<ReceiveId, std::error_code> post(const TagReceive& receive);
    // A message that no device has seen. Only without a device.
    TagArrival arrive(const TagMessage& message);
    CancelResult cancel(ReceiveId id);
    const TagMatcher& lists() const noexcept { return lists_; }

    void on_device_match(std::uint32_t slot, const TagMessage& message) override;
    void on_device_unexpected(const TagMessage& message) override;
    void on_device_operation(const TagOperationResult& result) override;

  private:
    // A place in the device's list. Free again when nothing of it is outstanding.
    struct Slot {
        enum class Holds : std::uint8_t {
            nothing,
            receive,    // posted here and there
            cancelled,  // the same, until the device says whether it came too late
            taken,      // the software has matched it; the device only has to forget it
            used_up,    // the device has matched it
        };
        ReceiveId id{};
        Holds holds = Holds::nothing;
        bool adding = false;
        bool removing = false;
    };

    Slot* find(ReceiveId id) noexcept;
    void remove(Slot& slot);
    void settle(Slot& slot);
    void removed(Slot& slot, bool done);
    void feed();
    void sync();
    TagArrival arrive_in_software(const TagMessage& message);

    TagMatcher lists_;
    TagDevice* device_;
    TagMatchHandler& handler_;
    std::vector<Slot> slots_;
    std::uint32_t handled_ = 0;
    bool agreed_ = true;
    bool syncing_ = false;
};

}  // namespace rtrs
