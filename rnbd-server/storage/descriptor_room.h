// Room for the descriptors that a storage is about to open. Storages take none of the last ones of
// the process, which are for lost paths, for the daemon itself and for an operator.
//
// Several storages may be opened at a time, each by a thread of its own. So what a storage has room
// for counts as open from the beginning.
//
// OWNER: whoever opens the storage, until its descriptors are open. THREAD: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace rnbd {

class DescriptorRoom {
  public:
    // returning: it was open in this process before, and whoever used it waits for it. Like the
    // lost connections of peers (rtrs/base/descriptors.h), it has some more than newcomers have.
    enum class For : std::uint8_t { newcomer, returning };
    // Why a storage waits that has no room, with EMFILE.
    static constexpr std::string_view none_left = "hardly any descriptors left (ulimit -n)";

    // None: there is no room for so many.
    static std::optional<DescriptorRoom> take(std::uint64_t descriptors, For whom) noexcept;
    DescriptorRoom(DescriptorRoom&& other) noexcept
        : descriptors_(std::exchange(other.descriptors_, 0)) {}
    DescriptorRoom& operator=(DescriptorRoom&& other) noexcept {
        std::swap(descriptors_, other.descriptors_);
        return *this;
    }
    ~DescriptorRoom();

  private:
    explicit DescriptorRoom(std::uint64_t descriptors) noexcept : descriptors_(descriptors) {}

    std::uint64_t descriptors_;
};

}  // namespace rnbd
