// What the servers say about this client's sessions. All servers are asked at the same time.
//
// THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <functional>
#include <map>
#include <string>

#include "rnbd-client/client.h"
#include "rnbd/statistics.h"
#include "rtrs/base/instant.h"

namespace rnbd {

// One server's answer; reason: why there is none, for people.
struct ServerView {
    StatisticsResponse statistics{};
    std::string reason;
};
using ServerViews = std::map<std::string, ServerView>;  // by the session's name

// done: called once, when all servers have answered or the timeout is over; possibly from inside
// this call.
void ask_servers(const Client& client, rtrs::Duration timeout,
                 std::function<void(const ServerViews&)> done);

}  // namespace rnbd
