// Keeps back small direct requests while a disk has enough to do, so that the disk gets new work at
// the very moment when it completes requests.
//
// Many virtual disks complete all their requests together, with one interrupt, when nothing is
// left. If such a disk gets all requests at once, it is idle while the answers travel, the clients
// make new requests, and those arrive. The requests that are kept back cover that time: 7 of 16 of
// those that there were last time. More would make the disk's rounds shorter, of which each costs
// the same time again; fewer would be done before the first new request has come through two
// daemons. A disk that completes requests one by one has 9 of 16 all the time, and gets the rest at
// its next completion.
//
// Pure: a list and some numbers. OWNER: a storage. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "rnbd-server/storage.h"

namespace rnbd {

class DiskReserve {
  public:
    // What a disk has before anything is kept, also if that is more than 9 of 16.
    static constexpr std::uint32_t at_disk_min = 8;
    static constexpr std::uint32_t kept_max = 16;
    // Longer requests keep a disk busy by themselves. They neither wait nor count.
    static constexpr std::uint64_t bytes_max = std::uint64_t{16} << 10;

    // True: the request is kept, linked by its `next`. False: the caller submits it to the disk
    // now.
    bool keeps(BlockRequest& request) noexcept {
        if (!is_small(request)) return false;
        came_since_end_ = true;
        if (at_disk_ < enough_ || kept_ == kept_max) {
            ++at_disk_;
            return false;
        }
        request.next = nullptr;
        *last_ = &request;
        last_ = &request.next;
        ++kept_;
        return true;
    }

    // A request that was submitted to the disk has ended. Returns a list of the requests to submit
    // now, in the order in which they came.
    [[nodiscard]] BlockRequest* ended(const BlockRequest& request) noexcept {
        if (!is_small(request)) return nullptr;
        at_disk_ += std::exchange(kept_, 0);
        // Of several that end together, the first one sees all that there were.
        if (std::exchange(came_since_end_, false)) {
            enough_ = std::max(at_disk_min, at_disk_ * 9 / 16);
        }
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
    std::uint32_t enough_ = at_disk_min;  // what the disk has before more is kept
    bool came_since_end_ = false;
    BlockRequest* first_ = nullptr;
    BlockRequest** last_ = &first_;
};

}  // namespace rnbd
