// Small direct requests that are kept back while a disk has enough to do, so that it has the next
// work at the very moment when it ends some.
//
// Many virtual disks end all that they have been given together, with one interrupt, when nothing
// is left. Who gives them all there is gives them nothing while the answers are on their way, the
// clients make new requests of them, and those come back. What is kept covers that time. A disk
// that ends one after the other has at least at_disk_min, and is given the rest at its next end.
//
// Pure: a list and two numbers. OWNER: a storage. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <utility>

#include "rnbd-server/storage.h"

namespace rnbd {

class DiskReserve {
  public:
    static constexpr std::uint32_t at_disk_min = 16;
    static constexpr std::uint32_t kept_max = 16;
    // Longer ones keep a disk busy by themselves, and neither wait nor count.
    static constexpr std::uint64_t bytes_max = std::uint64_t{16} << 10;

    // Whether it is kept, by its `next`; else it is to be given to the disk now.
    bool keeps(BlockRequest& request) noexcept {
        if (!is_small(request)) return false;
        if (at_disk_ < at_disk_min || kept_ == kept_max) {
            ++at_disk_;
            return false;
        }
        request.next = nullptr;
        *last_ = &request;
        last_ = &request.next;
        ++kept_;
        return true;
    }

    // One that was not kept, or is not any more, has ended. Returns a list of those that are to be
    // given to the disk now, in the order in which they came.
    [[nodiscard]] BlockRequest* ended(const BlockRequest& request) noexcept {
        if (!is_small(request)) return nullptr;
        at_disk_ += std::exchange(kept_, 0);
        --at_disk_;
        last_ = &first_;
        return std::exchange(first_, nullptr);
    }

  private:
    static bool is_small(const BlockRequest& request) noexcept {
        const bool moves =
            request.operation == BlockOperation::read || request.operation == BlockOperation::write;
        return moves && request.bytes <= bytes_max;
    }

    std::uint32_t at_disk_ = 0;
    std::uint32_t kept_ = 0;
    BlockRequest* first_ = nullptr;
    BlockRequest** last_ = &first_;
};

}  // namespace rnbd
