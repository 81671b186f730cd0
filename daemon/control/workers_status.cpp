#include "daemon/control/workers_status.h"

#include <nlohmann/json.hpp>

namespace rnbd {

nlohmann::json describe_workers(rtrs::Reactor& first) {
    nlohmann::json workers = nlohmann::json::array();
    for (std::uint32_t i = 0; i < first.members(); ++i) {
        const rtrs::Reactor::Statistics& did = first.member(i).statistics();
        workers.push_back({{"number", i}, {"turns", did.turns}, {"completions", did.completions}});
    }
    return workers;
}

}  // namespace rnbd
