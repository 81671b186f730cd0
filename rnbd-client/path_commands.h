// The commands by which rnbdctl changes the paths of a session while I/O runs: path_add,
// path_remove, path_reconnect, path_disconnect (docs/reference/control-protocol.md).
//
// A command is answered when the path is connected, gone or closed, or when that cannot happen any
// more. If the time that the caller gives is over before, the answer is the reason why it has not
// happened yet, and the operation goes on.
//
// OWNER: the commands of the control socket. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <list>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "daemon/control/server.h"
#include "rnbd-client/client.h"
#include "rtrs/base/clock.h"

namespace rnbd {

class PathCommands {
  public:
    enum class Kind : std::uint8_t { add, remove, reconnect, disconnect };

    // client: outlives this.
    explicit PathCommands(Client& client);

    void start(Kind kind, const nlohmann::json& arguments, ControlReply reply);

  private:
    struct Wait {
        Kind kind;
        std::string session;
        std::string label;
        rtrs::Instant started;
        rtrs::Instant deadline;
        bool begun = false;  // the session has been told
        bool force = false;
        ControlReply reply;
    };

    void check_all();
    // True if the command was answered.
    bool check(Wait& wait);
    bool begin(Wait& wait, rtrs::ClientSession& session);
    void succeed(Wait& wait, const rtrs::ClientSessionStatus& status, std::string_view state);

    Client& client_;
    rtrs::Timer timer_;
    std::list<Wait> waits_;
};

}  // namespace rnbd
