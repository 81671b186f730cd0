// Questions to a server for its exports: one over a session that is made for it and ends with
// it, or any number over a session that is there.
//
// OWNER: Client. THREAD: the reactor's (rtrs/reactor.h).
// Life: start() -> the answer, or the time is up -> the session is closed -> on_discovery_over.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/protocol.h"
#include "rnbd/identity/session_lock.h"
#include "rnbd/remote_volume.h"
#include "rtrs/base/clock.h"

namespace rnbd {

class Discovery final : public RemoteSessionHandler {
  public:
    class Owner {
      public:
        // The discovery may be destroyed from inside this call.
        virtual void on_discovery_over(Discovery& discovery) = 0;

      protected:
        ~Owner() = default;
    };
    // Once. failure: why there is no answer; then there are no entries.
    using Answered = std::function<void(const std::optional<ControlFailure>& failure,
                                        const std::vector<CatalogEntry>& entries)>;

    Discovery(rtrs::SessionEnvironment environment, rtrs::ClientSessionOptions options,
              Owner& owner);

    // ERRORS: EADDRINUSE (another client of this machine has a session of this name there),
    // fabric errors. Then it is over: answered is not called, and it may be destroyed.
    std::error_code start(rtrs::Duration timeout, Answered answered);
    // Ends it early.
    void stop();

  private:
    void on_session_closed() override { owner_.on_discovery_over(*this); }
    void answer(const std::optional<ControlFailure>& failure,
                const std::vector<CatalogEntry>& entries);
    void time_is_up();

    rtrs::SessionEnvironment environment_;
    Owner& owner_;
    SessionLock lock_;
    RemoteSession remote_;
    rtrs::Timer timer_;
    Answered answered_;
};

// The server is asked once for all who wait: they may be many by the time that it is there again.
//
// OWNER: a session of Client. THREAD: the reactor's (rtrs/reactor.h).
class CatalogQuestions {
  public:
    CatalogQuestions(rtrs::Clock& clock, RemoteSession& remote);
    // answered is called once: with the answer, when the session has ended, or when the time is up.
    void ask(rtrs::Duration timeout, Discovery::Answered answered);

  private:
    struct Question {
        rtrs::Instant deadline;
        Discovery::Answered answered;
    };
    void answer(const std::optional<ControlFailure>& failure,
                const std::vector<CatalogEntry>& entries);
    void look();

    rtrs::Clock& clock_;
    RemoteSession& remote_;
    rtrs::Timer timer_;
    std::vector<Question> waiting_;
    bool asked_ = false;
};

}  // namespace rnbd
