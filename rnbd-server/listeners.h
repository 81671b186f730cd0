// Where sessions come in, while the server runs: places are added, closed and changed.
//
//   Listener   On                                                       Goes to
//   -          is opened                                                listens
//   -          is opened at the start, or put back, and its address     waits
//              is not there
//   waits      is tried again, once a second                            listens
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "daemon/sockets/in_use.h"
#include "rnbd-server/config.h"
#include "rnbd-server/status.h"
#include "rnbd-server/target.h"
#include "rtrs/fabric.h"
#include "rtrs/rdma_devices.h"
#include "rtrs/reactor.h"
#include "rtrs/server.h"

namespace rnbd {

class Listeners {
  public:
    struct Surroundings {
        rtrs::Reactor& reactor;
        rtrs::Server& server;
        Target& target;
        rtrs::Fabric& tcp;
        rtrs::RdmaDevices& rdma;
        AlwaysInvalidate always_invalidate = AlwaysInvalidate::on;
        // What status shows; kept as it is.
        std::vector<ServerState::Listening>& shown;
    };
    // All of it outlives this.
    explicit Listeners(const Surroundings& surroundings);

    struct Failure {
        std::error_code error;  // none: it is not the address
        std::string text;       // a sentence that names the place
    };
    // At the start; blocks while another process has an address, for in_use_patience each. A
    // machine that lacks an address, or the RDMA device of one, serves by its others, as long as
    // one is left. ERRORS: the first one's that cannot be opened.
    std::expected<void, Failure> open_all(const std::vector<ServerConfig::Listen>& all);
    // absent: whether it waits for its address, or is refused, if that is not there.
    // again: the portal of one that was closed and is open again.
    enum class Absent : std::uint8_t { fails, waits };
    std::expected<void, Failure> open(const ServerConfig::Listen& listen, Absent absent,
                                      std::optional<std::uint32_t> again = {});
    // name: of rnbd-server/config_diff.h. It is of now: of several with port 0 others have it when
    // one of them is closed. A portal is one listener's for ever. None: it is not open.
    std::optional<std::uint32_t> portal_of(const std::string& name) const;
    std::optional<ServerConfig::Listen> find(std::uint32_t portal) const;
    // ASSUMES: it is there. Paths that came in there stay.
    void close(std::uint32_t portal);
    // No other one is open.
    bool is_last_open(std::uint32_t portal) const;
    // For clients that come from now on. ASSUMES: it was opened for kernel clients.
    void set_kernel(std::uint32_t portal, const KernelListener& kernel);
    // What was opened, in this order, and what waits.
    std::vector<ServerConfig::Listen> configured() const;
    // Before the server closes: what waits is not tried any more.
    void end() { retry_timer_.disarm(); }

  private:
    struct Place {
        ServerConfig::Listen listen;
        std::uint32_t portal = 0;
        ServerState::Listening shown;
    };

    std::expected<Place, Failure> try_open(const ServerConfig::Listen& listen, std::uint32_t portal,
                                           InUse in_use);
    std::expected<void, Failure> open_by(const ServerConfig::Listen& listen, std::uint32_t portal,
                                         InUse in_use);
    void wait_for(const ServerConfig::Listen& listen, std::uint32_t portal, const Failure& why);
    static void log_wait(const Place& place);
    void try_again();
    std::expected<rtrs::PortalOptions::Invalidate, std::string> invalidation(rtrs::Fabric& fabric);
    std::vector<Place>::iterator place_of(std::uint32_t portal);
    void tell_others();

    Surroundings in_;
    std::vector<Place> places_;
    std::uint32_t portals_ever_ = 0;
    rtrs::Timer retry_timer_;
};

}  // namespace rnbd
