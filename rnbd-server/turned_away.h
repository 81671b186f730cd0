// Clients that are not let in try again for as long as they live, several times a second. Of each
// the first is a line in the log, then one per minute with their number.
//
// OWNER: Target. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "rtrs/base/seldom.h"

namespace rnbd {

class TurnedAway {
  public:
    static constexpr rtrs::Duration interval = std::chrono::minutes(1);
    // Remembered at one time; when it is full it starts anew.
    static constexpr std::size_t sessions_max = 256;

    // How often this session was turned away for this reason since the last line, this one
    // included; none: it is not time for a line.
    std::optional<std::uint64_t> next(const std::string& session, const std::string& why,
                                      rtrs::Instant now) {
        if (known_.size() >= sessions_max) known_.clear();
        return known_.try_emplace({session, why}, interval).first->second.happened(now);
    }

  private:
    std::map<std::pair<std::string, std::string>, rtrs::Seldom> known_;
};

}  // namespace rnbd
