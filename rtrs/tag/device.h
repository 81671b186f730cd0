// The interface of a device that matches tags: a short ordered list of tags, changed by operations
// that the device processes one after the other, while messages arrive.
//
// Implementations: tests/unit/tag/sim_device.h, fabric/verbs/tag_queue.h (a tag-matching shared
// receive queue of an RDMA device).
// What such a device promises (rdma-core: tag_matching.md, ibv_post_srq_ops(3)):
//   D1  Operations take effect in the order in which they were posted; each is reported once.
//   D2  A message goes to the earliest added tag that matches and is awake, and uses that tag up.
//       Otherwise the message is unexpected, and the device counts it.
//   D3  An added tag sleeps while the device has counted more unexpected messages than the
//       operation says were handled. All tags wake when an operation names the device's count.
//   D4  Removing a tag that is in the list succeeds, awake or not; one that was used up fails.
//   D5  Matches and unexpected messages are reported in the order of arrival. Reports of operations
//       may come before or after those of messages that were matched earlier.
//
// THREAD: the owner's; events come in turns of their own, never from inside post().
#pragma once

#include <cstdint>

#include "rtrs/tag/matcher.h"

namespace rtrs {

struct TagOperation {
    enum class Kind : std::uint8_t { add, remove, sync };
    Kind kind = Kind::sync;
    std::uint32_t slot = 0;  // add, remove: which slot, below capacity()
    TagReceive receive{};    // add
    // How many unexpected messages the software has handled since the start, modulo 2^32.
    std::uint32_t handled = 0;
};

struct TagOperationResult {
    TagOperation::Kind kind{};
    std::uint32_t slot = 0;
    std::uint32_t handled = 0;   // as posted
    bool done = true;            // false: remove came too late
    bool sync_required = false;  // the device's count differs from `handled`
};

class TagDeviceHandler {
  public:
    virtual void on_device_match(std::uint32_t slot, const TagMessage& message) = 0;
    virtual void on_device_unexpected(const TagMessage& message) = 0;
    virtual void on_device_operation(const TagOperationResult& result) = 0;

  protected:
    ~TagDeviceHandler() = default;
};

class TagDevice {
  public:
    virtual ~TagDevice() = default;
    // How many tags it holds at a time; may be 0.
    virtual std::uint32_t capacity() const noexcept = 0;
    // At most 2 * capacity() + 1 are outstanding at a time.
    virtual void post(const TagOperation& operation) = 0;
};

}  // namespace rtrs
