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

#include "rtrs/base/instant.h"

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
        auto [place, is_new] = known_.try_emplace({session, why}, Known{now, 0});
        Known& known = place->second;
        ++known.count;
        if (!is_new && now < known.since + interval) return std::nullopt;
        known.since = now;
        return std::exchange(known.count, 0);
    }

  private:
    struct Known {
        rtrs::Instant since;  // the last line
        std::uint64_t count;
    };
    std::map<std::pair<std::string, std::string>, Known> known_;
};

}  // namespace rnbd
