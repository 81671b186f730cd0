// The last so many sessions that something has happened to; older ones are forgotten.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "rtrs/base/uuid.h"

namespace rtrs {

class RememberedSessions {
  public:
    explicit RememberedSessions(std::size_t at_most) noexcept : at_most_(at_most) {}

    // It is the newest, whether it was there or not.
    void remember(const Uuid& id) {
        std::erase(sessions_, id);
        if (sessions_.size() == at_most_) sessions_.pop_front();
        sessions_.push_back(id);
    }
    bool contains(const Uuid& id) const noexcept {
        return std::ranges::find(sessions_, id) != sessions_.end();
    }

  private:
    std::size_t at_most_;
    std::deque<Uuid> sessions_;  // the newest at the end
};

}  // namespace rtrs
