// The counters that `rnbdctl stats` shows: they count since the last reset, which does not change
// the daemon's own counters. An item is {"kind", "name", counters ...}.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "daemon/control/server.h"
#include "rtrs/base/clock.h"

namespace rnbd {

class Statistics {
  public:
    // items: returns an array of the present items. clock: outlives this.
    using Items = std::function<nlohmann::json()>;
    Statistics(const rtrs::Clock& clock, std::string daemon, Items items);

    void reset();
    // One with fewer than at the reset is taken for another one of its name, from then on.
    nlohmann::json document();
    // Adds the commands `stats` and `stats_reset`.
    // ASSUMES: this outlives the control server.
    void add_commands(ControlServer& control);

  private:
    static bool is_another(const nlohmann::json& item, const nlohmann::json& then);

    using Key = std::pair<std::string, std::string>;
    const rtrs::Clock& clock_;
    std::string daemon_;
    Items items_;
    rtrs::Instant since_;
    std::map<Key, nlohmann::json> begun_;
};

}  // namespace rnbd
