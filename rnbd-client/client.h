// The client daemon's sessions and mapped devices, from the configuration and from rnbdctl.
//
// OWNER: main. THREAD: the reactor's.
#pragma once

#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control_protocol.h"
#include "rnbd-client/config.h"
#include "rnbd-client/mapping.h"
#include "rnbd-client/session_lock.h"
#include "rnbd/remote_volume.h"
#include "rtrs/base/random.h"
#include "rtrs/fabric.h"
#include "rtrs/reactor.h"
#include "rtrs/trace.h"

namespace rnbd {

// The fabrics that paths may use. Outlive the client.
struct ClientFabrics {
    rtrs::Fabric& tcp;  // payload checksums wanted
    rtrs::Fabric& tcp_unchecked;
};

class Client final : public Mapping::Owner {
  public:
    Client(rtrs::Reactor& reactor, rtrs::Random& random, rtrs::Tracer& tracer,
           ClientFabrics fabrics);
    ~Client();  // ASSUMES: nothing is mapped, or stop() has reported

    // Everything of the configuration. The error names what could not be set up.
    std::expected<void, std::string> start(const ClientConfig& config);

    // By rnbdctl. new_session: made if no session of this name is there.
    // ERRORS: exists, not_found (session), failed (address in use, bad names).
    std::expected<void, ControlFailure> map(const ClientConfig::Device& device,
                                            const ClientConfig::Session* new_session);
    // done is called when the device is gone. ERRORS: not_found, busy (clients are connected).
    enum class Unmap : std::uint8_t { if_unused, by_force };
    std::expected<void, ControlFailure> unmap(const std::string& device, Unmap how,
                                              std::function<void()> done);
    // Only asks the session; rtrs/client.h says how it goes on.
    // ERRORS: not_found (session), exists (a path with these addresses), busy (another client on
    // this machine has it), failed, stopping.
    std::expected<void, ControlFailure> add_path(const std::string& session,
                                                 const ClientConfig::Path& path);
    // Ends everything, then calls done.
    void stop(std::function<void()> done);

    struct Session;
    const std::map<std::string, std::unique_ptr<Session>>& sessions() const noexcept {
        return sessions_;
    }
    // ERRORS: not_found, stopping.
    std::expected<Session*, ControlFailure> find_session(const std::string& name) const;
    rtrs::Clock& clock() const noexcept { return reactor_; }
    const std::vector<std::unique_ptr<Mapping>>& mappings() const noexcept { return mappings_; }

  private:
    std::expected<Session*, std::string> add_session(const ClientConfig::Session& config);
    std::expected<void, std::string> add_mapping(Session& session,
                                                 const ClientConfig::Device& config);
    void on_mapping_stopped(Mapping& mapping) override;
    void session_closed(Session& session);
    void finish_if_done();

    rtrs::Reactor& reactor_;
    rtrs::Random& random_;
    rtrs::Tracer& tracer_;
    ClientFabrics fabrics_;
    std::map<std::string, std::unique_ptr<Session>> sessions_;
    NbdSockets sockets_;
    std::vector<std::unique_ptr<Mapping>> mappings_;
    std::map<const Mapping*, std::vector<std::function<void()>>> unmapped_;
    std::function<void()> stopped_;
};

// A session and what it was made from.
struct Client::Session final : RemoteSessionHandler {
    Session(Client& its_client, rtrs::SessionEnvironment environment,
            rtrs::ClientSessionOptions options, ClientConfig::Session its_config)
        : client(its_client),
          config(std::move(its_config)),
          remote(environment, std::move(options), *this) {}
    void on_session_closed() override { client.session_closed(*this); }

    Client& client;
    ClientConfig::Session config;
    SessionLock lock;
    RemoteSession remote;
    // Made by rnbdctl map --path: goes with its last device.
    bool temporary = false;
    bool closing = false;
};

}  // namespace rnbd
