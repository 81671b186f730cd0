// The client daemon's sessions and mapped devices, from the configuration and from rnbdctl.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/control/protocol.h"
#include "daemon/sockets/in_use.h"
#include "rnbd-client/config.h"
#include "rnbd-client/discovery.h"
#include "rnbd-client/mapping.h"
#include "rnbd-client/writer_numbers.h"
#include "rnbd/identity/session_lock.h"
#include "rnbd/remote_volume.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/random.h"
#include "rtrs/fabric.h"
#include "rtrs/rdma_devices.h"
#include "rtrs/reactor.h"
#include "rtrs/trace.h"

namespace rnbd {

// The fabrics that paths may use. Outlive the client.
struct ClientFabrics {
    rtrs::Fabric& tcp;  // payload checksums wanted
    rtrs::Fabric& tcp_unchecked;
    rtrs::RdmaDevices& rdma;
};

class Client final : public Mapping::Owner, public Discovery::Owner {
  public:
    // writers: outlive it, and are loaded.
    Client(rtrs::Reactor& reactor, rtrs::Random& random, rtrs::Tracer& tracer,
           ClientFabrics fabrics, WriterNumbers& writers);
    ~Client();  // ASSUMES: nothing is mapped, or stop() has reported

    // Everything of the configuration. The error names what could not be set up. Blocks while
    // another process has an address, for in_use_patience each.
    std::expected<void, std::string> start(const ClientConfig& config);
    // Makes the files of NBD sockets anew that others have removed.
    void listen_again() { sockets_.listen_again(); }
    // The process ends, and has served nobody.
    void remove_files() noexcept { sockets_.remove_files(); }

    // By rnbdctl. new_session: made if no session of this name is there. done is called when it is
    // mapped, or nothing of it is left: who hears of it may go on at once. Possibly from inside.
    // ERRORS: exists, not_found (session), busy (the session is closing), failed (address in use,
    // bad names), stopping.
    using Mapped = std::function<void(const std::expected<void, ControlFailure>&)>;
    void map(const ClientConfig::Device& device, const ClientConfig::Session* new_session,
             Mapped done);
    // done is called when the device is gone, and with it a session that was made for it; or it
    // stays because it is used. ERRORS: not_found, busy (clients are connected, the kernel's device
    // is used).
    enum class Unmap : std::uint8_t { if_unused, by_force };
    // It is gone; what of its data may be lost, a sentence, empty if nothing.
    struct Gone {
        std::string loss;
    };
    using Unmapped = std::function<void(const std::expected<Gone, ControlFailure>&)>;
    void unmap(const std::string& device, Unmap how, Unmapped done);
    // By a new configuration. ERRORS: exists, failed (another client on this machine has it, no
    // device leads there), stopping.
    std::expected<void, ControlFailure> make_session(const ClientConfig::Session& config);
    // done is called when it is gone. ERRORS: not_found, busy (devices are on it), stopping.
    using Closed = std::function<void(std::expected<void, ControlFailure>)>;
    void close_session(const std::string& name, Closed done);
    // A session that the files name: it stays without devices, too.
    void keep_session(const ClientConfig::Session& config);
    // Only asks the session; rtrs/client.h says how it goes on.
    // ERRORS: not_found (session), exists (a path with these addresses), busy (another client on
    // this machine has it), failed, stopping.
    std::expected<void, ControlFailure> add_path(const std::string& session,
                                                 const ClientConfig::Path& path);
    // What a server has for a session. server: a session of ours, or "HOST:PORT"; with the latter
    // over the session of ours that has this path, else over one of this name, made for it.
    // ERRORS: not_found (no such session), bad_arguments, exists (the name is a session of ours),
    // busy (another client on this machine has it), failed, stopping. Then answered is not called.
    std::expected<void, ControlFailure> discover(const std::string& server,
                                                 const std::string& session_name,
                                                 rtrs::Duration timeout,
                                                 Discovery::Answered answered);
    // From now on what waits without a path, or for a volume that is not open, fails after at most
    // so long, whatever the configuration says; what waits already is given as long from this call
    // on. While a path is up nothing is another. None: as configured. Of sessions to come too.
    void limit_holding(std::optional<rtrs::Duration> limit);
    std::optional<rtrs::Duration> hold_limit() const noexcept { return hold_limit_; }
    // Ends everything, then calls done.
    void stop(std::function<void()> done);

    // What a path is over that does not say it: RDMA where a device leads there, else TCP.
    ClientConfig::Path::Fabric fabric_towards(const ClientConfig::Path& path);
    // Of the device that is mapped next.
    std::uint32_t free_number() const noexcept;

    struct Session;
    // How long requests wait: as its configuration says, within the limit.
    void set_waiting(Session& session);
    const std::map<std::string, std::unique_ptr<Session>>& sessions() const noexcept {
        return sessions_;
    }
    // ERRORS: not_found, stopping.
    std::expected<Session*, ControlFailure> find_session(const std::string& name) const;
    rtrs::Clock& clock() const noexcept { return reactor_; }
    const std::vector<std::unique_ptr<Mapping>>& mappings() const noexcept { return mappings_; }

  private:
    std::expected<Session*, std::string> add_session(const ClientConfig::Session& config);
    // Finds the fabric. The error is a sentence.
    std::expected<rtrs::PathAddress, std::string> address_of(const ClientConfig::Session& session,
                                                             const ClientConfig::Path& path);
    Mapping& add_mapping(Session& session, const ClientConfig::Device& config);
    void writers_changed();
    // The session of a device that is about to be mapped. ERRORS: as map().
    std::expected<Session*, ControlFailure> session_for(const ClientConfig::Device& device,
                                                        const ClientConfig::Session* new_session);
    void map_on_successor(Session& session, const ClientConfig::Device& device, Mapped done);
    void on_mapping_stopped(Mapping& mapping) override;
    void on_mapping_used(Mapping& mapping) override;
    void on_mapping_overdue(Mapping& mapping) override;
    bool only_overdue_on(const std::string& session) const noexcept;
    void cut_off(Session& session);
    void connect_again(Session& session);
    void on_mapping_changed(Mapping& mapping) override;
    void unmap_ended(const Mapping& mapping, const std::expected<Gone, ControlFailure>& result);
    void on_discovery_over(Discovery& discovery) override;
    void session_closed(Session& session);
    void finish_if_done();

    rtrs::Reactor& reactor_;
    rtrs::Random& random_;
    rtrs::Tracer& tracer_;
    ClientFabrics fabrics_;
    WriterNumbers& writers_;
    bool writers_write_posted_ = false;
    std::error_code writers_error_;
    std::map<std::string, std::unique_ptr<Session>> sessions_;
    NbdSockets sockets_;
    std::vector<std::unique_ptr<Mapping>> mappings_;
    std::vector<std::unique_ptr<Discovery>> discoveries_;
    std::map<const Mapping*, std::vector<Unmapped>> unmapped_;
    std::uint32_t paths_ever_ = 0;  // spreads them over the workers
    std::optional<rtrs::Duration> hold_limit_;
    rtrs::Instant limited_at_{};  // when that was set
    std::function<void()> stopped_;
};

// A session and what it was made from.
struct Client::Session final : RemoteSessionHandler {
    Session(Client& its_client, rtrs::SessionEnvironment environment,
            rtrs::ClientSessionOptions options, ClientConfig::Session its_config)
        : client(its_client),
          config(std::move(its_config)),
          remote(environment, std::move(options), *this),
          questions(environment.clock, remote),
          connect_timer(environment.clock, this, [](void* self) {
              auto& session = *static_cast<Session*>(self);
              session.client.connect_again(session);
          }) {}
    void on_session_closed() override { client.session_closed(*this); }
    void on_session_path_gone(std::string_view label) override;
    void on_catalog_event(const CatalogEvent& event) override;
    // That it has now; config has those that it began with.
    std::vector<ClientConfig::Path> paths();
    // What it is now, whoever made it so.
    ClientConfig::Session now();
    // Another client has its name: it does not come back by itself, and nothing new goes over it.
    bool taken_over() noexcept { return remote.rtrs().refuses_new() == rtrs::Error::rejected; }
    // Of an address that none of its paths leads to: another client may have it.
    void release_lock(const std::string& destination);

    Client& client;
    ClientConfig::Session config;
    SessionLock lock;
    RemoteSession remote;
    CatalogQuestions questions;
    PermitShares shares;  // of its devices
    // Made by rnbdctl map --path: goes with its last device.
    bool temporary = false;
    bool closing = false;
    std::vector<std::string> cut_off;  // labels of paths, until its overdue devices have gone
    rtrs::Timer connect_timer;         // while they are not closed yet
    Closed closed;
};

}  // namespace rnbd
