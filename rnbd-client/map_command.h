// The command by which rnbdctl maps a device: map (docs/reference/control-protocol.md).
//
// It is answered when the device can be used, when the server refuses to open its volume, or after
// a second: the device is there by then in any case, and the answer says what it waits for.
//
// OWNER: the commands of the control socket. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "daemon/control/server.h"
#include "rnbd-client/client.h"
#include "rtrs/base/clock.h"

namespace rnbd {

class MapCommand {
  public:
    // client: outlives this. socket_folder: the folder for the socket of a device whose request
    // names no address.
    MapCommand(Client& client, std::string socket_folder);

    void start(const nlohmann::json& arguments, ControlReply reply);

  private:
    struct Wait {
        std::string device;
        rtrs::Instant deadline;
        std::shared_ptr<ControlReply> reply;
    };

    void wait_for(Wait wait);
    void check_all();
    // True if the command was answered.
    bool check(Wait& wait);

    Client& client_;
    std::string socket_folder_;
    rtrs::Timer timer_;
    std::list<Wait> waits_;
};

}  // namespace rnbd
