// Tag matching split between a device, which holds a bounded prefix of the posted receives, and
// software, which holds the rest and every unexpected message.
//
// The rules of the hand-over (tests/model/tag_offload.pml is a model of it; it fails without any of
// them):
//   H1  The device holds a prefix: a receive is given to it only when all before it are there.
//   H2  After an unexpected message no receive is given to the device until both sides agree on how
//       many unexpected messages were handled: every operation names the number, and the device
//       compares.
//   H3  A message counts as handled only when the software has matched or queued it. If it took a
//       receive that is also in the device's list, the receive's removal must already have been
//       posted, ahead of the count.
//   H4  A receive that is being cancelled in the device is passed over by the software. It ends as
//       cancelled or as matched by the device, never both.
//
// Without a device everything is done in software: the same results, at once.
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
    // Also called from inside post() and arrive().
    virtual void on_match(const TagMatch& match) = 0;
    // A cancel() that was pending has taken effect.
    virtual void on_cancelled(ReceiveId id, std::uint64_t context) = 0;
    // What became of a message that the device gave to the software, unless it matched.
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
    // device: null for none; outlives the matcher.
    OffloadMatcher(const TagLimits& limits, TagDevice* device, TagMatchHandler& handler);

    // ERRORS: as TagMatcher::post.
    std::expected<ReceiveId, std::error_code> post(const TagReceive& receive);
    // A message has arrived that no device has seen. Only without a device.
    TagArrival arrive(const TagMessage& message);
    CancelResult cancel(ReceiveId id);
    const TagMatcher& lists() const noexcept { return lists_; }

    void on_device_match(std::uint32_t slot, const TagMessage& message) override;
    void on_device_unexpected(const TagMessage& message) override;
    void on_device_operation(const TagOperationResult& result) override;

  private:
    // A place in the device's list. It is free again when no operation on it is outstanding.
    struct Slot {
        enum class Holds : std::uint8_t {
            nothing,
            receive,    // posted here and there
            cancelled,  // the same, until the device says whether the removal came too late
            taken,      // the software has matched it; the device has yet to forget it
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
