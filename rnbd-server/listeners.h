// Where sessions come in, while the server runs: places are added, closed and changed.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "daemon/in_use.h"
#include "rnbd-server/config.h"
#include "rnbd-server/status.h"
#include "rnbd-server/target.h"
#include "rtrs/fabric.h"
#include "rtrs/rdma_devices.h"
#include "rtrs/server.h"

namespace rnbd {

class Listeners {
  public:
    struct Surroundings {
        rtrs::Server& server;
        Target& target;
        rtrs::Fabric& tcp;
        rtrs::RdmaDevices& rdma;
        AlwaysInvalidate always_invalidate = AlwaysInvalidate::on;
        // What status shows; kept as it is.
        std::vector<ServerState::Listening>& shown;
    };
    // All of it outlives this.
    explicit Listeners(const Surroundings& surroundings) : in_(surroundings) {}

    struct Failure {
        std::error_code error;  // none: it is not the address
        std::string text;       // a sentence that names the place
    };
    // in_use: whether it blocks while another process has the address, for in_use_patience.
    // again: the door of one that was closed and is open again.
    std::expected<void, Failure> open(const ServerConfig::Listen& listen, InUse in_use,
                                      std::optional<std::uint32_t> again = {});
    // name: of rnbd-server/config_diff.h. It is of now: of several with port 0 others have it when
    // one of them is closed. A door is one listener's for ever. None: it is not open.
    std::optional<std::uint32_t> door_of(const std::string& name) const;
    std::optional<ServerConfig::Listen> find(std::uint32_t door) const;
    // ASSUMES: it is open. Paths that came in there stay.
    void close(std::uint32_t door);
    // For clients that come from now on. ASSUMES: it was opened for kernel clients.
    void set_kernel(std::uint32_t door, const KernelListener& kernel);
    // What was opened, in this order.
    std::vector<ServerConfig::Listen> configured() const;

  private:
    struct Place {
        ServerConfig::Listen listen;
        std::uint32_t door = 0;
        ServerState::Listening shown;
    };

    std::expected<Place, Failure> try_open(const ServerConfig::Listen& listen, std::uint32_t door,
                                           InUse in_use);
    std::expected<rtrs::DoorOptions::Invalidate, std::string> invalidation(rtrs::Fabric& fabric);
    std::vector<Place>::iterator place_of(std::uint32_t door);
    void tell_others();

    Surroundings in_;
    std::vector<Place> places_;
    std::uint32_t doors_ever_ = 0;
};

}  // namespace rnbd
