// What a server says of its client's session, when it is asked. A server without messages (a
// kernel) cannot be asked.
//
// OWNER: RemoteSession. THREAD: the session's.
#pragma once

#include <cstdint>
#include <functional>
#include <system_error>
#include <vector>

#include "rnbd/figures.h"
#include "rtrs/client.h"

namespace rnbd {

class RemoteFigures {
  public:
    // figures: meaningless with an error.
    using Answered = std::function<void(std::error_code error, const SessionFigures& figures)>;

    explicit RemoteFigures(rtrs::ClientSession& session) : session_(session) {}

    // Who asks while a question is on its way gets its answer: a session has one at a time.
    // answered: once, possibly from inside. ERRORS: ENOTCONN (no path is up), EOPNOTSUPP (the
    // server has no messages), Error::path_lost, Error::closed, Error::protocol, ENOBUFS (too many
    // ask already).
    void ask(Answered answered);

    // --- For the session.
    void reset();
    void closed() { answer(rtrs::Error::closed, {}); }

  private:
    std::error_code question();
    void received(const rtrs::ReceivedMessage& message);
    void answer(std::error_code error, const SessionFigures& figures);

    rtrs::ClientSession& session_;
    bool waiting_ = false;      // a receive is posted
    std::uint32_t number_ = 0;  // of the newest question
    std::vector<Answered> asked_;
};

}  // namespace rnbd
