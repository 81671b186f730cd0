// Limits the log lines about clients that are refused. Such a client tries again for as long as it
// lives, several times a second. The first refusal of each is logged, then one line per minute with
// the number of refusals.
//
// OWNER: Target. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "rtrs/base/log_rate_limit.h"

namespace rnbd {

class TurnedAway {
  public:
    static constexpr rtrs::Duration interval = std::chrono::minutes(1);
    // How many pairs of session and reason are remembered; when this is reached, all are forgotten.
    static constexpr std::size_t sessions_max = 256;

    // How often this session was refused for this reason since the last log line, including this
    // time; none: it is not time for a line yet.
    std::optional<std::uint64_t> next(const std::string& session, const std::string& why,
                                      rtrs::Instant now) {
        if (known_.size() >= sessions_max) known_.clear();
        return known_.try_emplace({session, why}, interval).first->second.happened(now);
    }

  private:
    std::map<std::pair<std::string, std::string>, rtrs::LogRateLimit> known_;
};

}  // namespace rnbd
