// Tells a session what the server knows about it, when it asks (rnbd/statistics.h).
//
// OWNER: Target. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "rnbd/statistics.h"
#include "rtrs/base/clock.h"
#include "rtrs/server.h"

namespace rnbd {

class StatisticsService {
  public:
    using Look = std::function<StatisticsResponse(const rtrs::ServerSession&)>;
    // look: returns the statistics of a session that is up.
    StatisticsService(rtrs::Clock& clock, Look look);
    ~StatisticsService();

    void session_up(rtrs::ServerSession& session);
    void session_down(rtrs::ServerSession& session);

  private:
    struct Asker;

    static void wait_for_question(Asker& asker);
    void asked(Asker& asker, const rtrs::ReceivedMessage& message);

    rtrs::Clock& clock_;
    Look look_;
    std::map<const rtrs::ServerSession*, std::unique_ptr<Asker>> askers_;
};

}  // namespace rnbd
