// A bounded list of the sessions to which something happened last; older ones are forgotten.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "rtrs/base/uuid.h"

namespace rtrs {

class RememberedSessions {
  public:
    explicit RememberedSessions(std::size_t at_most) noexcept : at_most_(at_most) {}

    // Makes the session the newest entry, whether it was in the list or not. connections: the most
    // that it had at a time, if anybody wants to know.
    void remember(const Uuid& id, std::uint32_t connections = 0) {
        std::erase_if(sessions_, [&](const One& one) { return one.id == id; });
        if (sessions_.size() == at_most_) sessions_.pop_front();
        sessions_.push_back({.id = id, .connections = connections});
    }
    bool contains(const Uuid& id) const noexcept {
        return std::ranges::find(sessions_, id, &One::id) != sessions_.end();
    }
    // 0: it is not in the list.
    std::uint32_t connections_of(const Uuid& id) const noexcept {
        const auto found = std::ranges::find(sessions_, id, &One::id);
        return found == sessions_.end() ? 0 : found->connections;
    }

  private:
    struct One {
        Uuid id;
        std::uint32_t connections;
    };
    std::size_t at_most_;
    std::deque<One> sessions_;  // the newest at the end
};

}  // namespace rtrs
