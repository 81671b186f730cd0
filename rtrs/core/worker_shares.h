// How many of a server's connections that carry requests each thread of its fabric has, and which
// one is to have another: the nearest (ConnectRequest::nearest_worker()), as long as that does not
// leave others with less to do. Connections stay where they are; who is near may move.
//
// Pure. Concerns only fabrics whose threads are held on processors.
//
// OWNER: Server. LIFE: longer than its places.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "rtrs/base/assert.h"

namespace rtrs {

class WorkerShares {
  public:
    // One connection's place with a worker; gives it back when it ends.
    class Place {
      public:
        Place() noexcept = default;
        Place(Place&& other) noexcept
            : shares_(std::exchange(other.shares_, nullptr)), worker_(other.worker_) {}
        Place& operator=(Place&& other) noexcept {
            std::swap(shares_, other.shares_);
            std::swap(worker_, other.worker_);
            return *this;
        }
        ~Place() { give_back(); }
        std::uint32_t worker() const noexcept { return worker_; }
        void give_back() noexcept {
            if (auto* const shares = std::exchange(shares_, nullptr)) --shares->carried_[worker_];
        }

      private:
        friend class WorkerShares;
        Place(WorkerShares& shares, std::uint32_t worker) noexcept
            : shares_(&shares), worker_(worker) {
            ++shares.carried_[worker];
        }
        WorkerShares* shares_ = nullptr;
        std::uint32_t worker_ = 0;
    };

    // For the first connection of a path. The worker `nearest` of so many, unless it has more than
    // another one, and more than an eighth more.
    Place near(std::uint32_t nearest, std::uint32_t workers) {
        RTRS_ASSERT(nearest < workers);
        const std::uint32_t fewest = std::ranges::min(of(workers));
        const bool balanced = carried_[nearest] <= fewest + fewest / slack;
        return balanced ? Place(*this, nearest) : idlest(workers);
    }
    // For a further one of a path: it has several in order to be carried by several.
    Place idlest(std::uint32_t workers) {
        const std::span<const std::uint32_t> all = of(workers);
        const auto found = std::ranges::min_element(all);
        return Place(*this, static_cast<std::uint32_t>(found - all.begin()));
    }

  private:
    static constexpr std::uint32_t slack = 8;
    std::span<const std::uint32_t> of(std::size_t workers) {
        if (carried_.size() < workers) carried_.resize(workers);
        return std::span(carried_).first(workers);
    }
    std::vector<std::uint32_t> carried_;  // by worker
};

}  // namespace rtrs
