// Tells a session what the server knows about it, when it asks (rnbd/figures.h).
//
// OWNER: Target. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "rnbd/figures.h"
#include "rtrs/base/clock.h"
#include "rtrs/server.h"

namespace rnbd {

class FiguresDesk {
  public:
    using Look = std::function<SessionFigures(const rtrs::ServerSession&)>;
    // look: returns the figures of a session that is up.
    FiguresDesk(rtrs::Clock& clock, Look look);
    ~FiguresDesk();

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
