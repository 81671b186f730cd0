// The listeners of the server. They can be added, closed and changed while the server runs.
//
//   Listener   On                                                   Goes to
//   -          it is opened                                         listens
//   -          it is opened at the start, or put back, and its      waits
//              address is not there
//   waits      it is tried again, once a second                     listens
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
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
        // What the status document shows; kept up to date.
        std::vector<ServerState::Listening>& shown;
    };
    // All members of surroundings outlive this.
    explicit Listeners(const Surroundings& surroundings);

    struct Failure {
        std::error_code error;  // none: the address is not the reason
        std::string text;       // a sentence that names the listener
    };
    // Called at the start. Blocks while another process has an address, for in_use_timeout per
    // address. If the machine lacks an address, or the RDMA device of one, the server uses the
    // other addresses, as long as one is left.
    // ERRORS: that of the first listener that cannot be opened.
    std::expected<void, Failure> open_all(const std::vector<ServerConfig::Listen>& all);
    // absent: what to do if the address is not there: wait for it, or fail. again: the portal of a
    // listener that was closed and is opened again.
    enum class Absent : std::uint8_t { fails, waits };
    std::expected<void, Failure> open(const ServerConfig::Listen& listen, Absent absent,
                                      std::optional<std::uint32_t> again = {});
    // name: as listener_names() (rnbd-server/config_diff.h) gives it now. Names are not permanent:
    // if several listeners have port 0 and one of them is closed, the names of others change. A
    // portal stays the same listener's for ever. None: no such listener is open.
    std::optional<std::uint32_t> portal_of(const std::string& name) const;
    std::optional<ServerConfig::Listen> find(std::uint32_t portal) const;
    // Paths that were accepted there stay.
    // ASSUMES: the portal exists.
    void close(std::uint32_t portal);
    // True if no other listener is open.
    bool is_last_open(std::uint32_t portal) const;
    // Applies to clients that connect from now on.
    // ASSUMES: the listener was opened for kernel clients.
    void set_kernel(std::uint32_t portal, const KernelListener& kernel);
    // The listeners that were opened, in this order, and those that wait.
    std::vector<ServerConfig::Listen> configured() const;
    // Called before the server closes: listeners that wait are not tried any more.
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
