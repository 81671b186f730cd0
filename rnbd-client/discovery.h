// Asks a server for its exports. Discovery asks one question over a session that is made for it and
// ends with it; CatalogQuestions asks any number of questions over an existing session.
//
// OWNER: Client. THREAD: the reactor's (rtrs/reactor.h).
// LIFE: start() -> the answer, or the time is up -> the session is closed -> on_discovery_over.
#pragma once

#include <functional>
#include <optional>
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
    // Called once. failure: why there is no answer; then there are no entries.
    using Answered = std::function<void(const std::optional<ControlFailure>& failure,
                                        const std::vector<CatalogEntry>& entries)>;

    Discovery(rtrs::SessionEnvironment environment, rtrs::ClientSessionOptions options,
              Owner& owner);

    // After an error the discovery is over: answered is not called, and it may be destroyed.
    // ERRORS: EADDRINUSE (another client of this machine has a session of this name there), errors
    // of the fabric.
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

// Asks the server one question for all callers that wait: there may be many of them when the server
// comes back.
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
