// A bounded list of the sessions to which something happened last; older ones are forgotten.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "rtrs/base/uuid.h"

namespace rtrs {

class RememberedSessions {
  public:
    explicit RememberedSessions(std::size_t at_most) noexcept : at_most_(at_most) {}

    // Makes the session the newest entry, whether it was in the list or not.
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
