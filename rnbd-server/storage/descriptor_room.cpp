#include "rnbd-server/storage/descriptor_room.h"

#include <fcntl.h>

#include <atomic>

#include "rtrs/base/descriptor.h"
#include "rtrs/base/descriptors.h"

namespace rnbd {
namespace {

// What all that is being opened has room for. Some of it may be open already, and counts twice for
// that moment.
std::atomic<std::uint64_t> taken = 0;

std::uint64_t left_to(DescriptorRoom::For whom) noexcept {
    // How many are left is known by one that is new. This one asks no file system that may be slow.
    const rtrs::Descriptor newest(::open("/", O_PATH | O_CLOEXEC));
    if (!newest) return 0;
    const rtrs::DescriptorsLeft left = rtrs::descriptors_left(newest.get());
    return whom == DescriptorRoom::For::newcomer ? left.to_new : left.to_known;
}

}  // namespace

std::optional<DescriptorRoom> DescriptorRoom::take(std::uint64_t descriptors, For whom) noexcept {
    DescriptorRoom room(descriptors);
    const std::uint64_t wanted = (taken += descriptors);
    if (left_to(whom) < wanted) return std::nullopt;
    return room;
}

DescriptorRoom::~DescriptorRoom() { taken -= descriptors_; }

}  // namespace rnbd
