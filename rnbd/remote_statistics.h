// Asks a server for its statistics of this client's session (rnbd/statistics.h). A server without
// messages (a kernel) cannot be asked.
//
// OWNER: RemoteSession. THREAD: the session's.
#pragma once

#include <cstdint>
#include <functional>
#include <system_error>
#include <vector>

#include "rnbd/statistics.h"
#include "rtrs/client.h"

namespace rnbd {

class RemoteStatistics {
  public:
    // statistics: meaningless if there is an error.
    using Answered =
        std::function<void(std::error_code error, const StatisticsResponse& statistics)>;

    explicit RemoteStatistics(rtrs::ClientSession& session) : session_(session) {}

    // A session has one question on its way at a time; a caller that asks meanwhile gets the answer
    // to that question. answered: called once, possibly from inside ask().
    // ERRORS: ENOTCONN (no path is up), EOPNOTSUPP (the server has no messages), Error::path_lost,
    // Error::closed, Error::protocol, ENOMEM, ENOBUFS (too many callers are waiting).
    void ask(Answered answered);

    // --- For the session.
    void reset();
    void closed() { answer(rtrs::Error::closed, {}); }

  private:
    std::error_code question();
    void received(const rtrs::ReceivedMessage& message);
    void answer(std::error_code error, const StatisticsResponse& statistics);

    rtrs::ClientSession& session_;
    bool waiting_ = false;      // a receive is posted
    std::uint32_t number_ = 0;  // the number of the newest question
    std::vector<Answered> asked_;
};

}  // namespace rnbd
