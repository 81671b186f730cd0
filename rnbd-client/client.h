// The sessions and mapped devices of the client daemon. They come from the configuration and from
// rnbdctl.
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/protocol.h"
#include "daemon/sockets/in_use.h"
#include "rnbd-client/config.h"
#include "rnbd-client/discovery.h"
#include "rnbd-client/mapping.h"
#include "rnbd-client/writer_numbers.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/random.h"
#include "rtrs/fabric.h"
#include "rtrs/rdma_devices.h"
#include "rtrs/reactor.h"
#include "rtrs/trace.h"

namespace rnbd {

// The fabrics that paths may use. They outlive the client.
struct ClientFabrics {
    rtrs::Fabric& tcp;  // wants checksums of payloads
    rtrs::Fabric& tcp_unchecked;
    rtrs::RdmaDevices& rdma;
};

class Client final : public Mapping::Owner, public Discovery::Owner {
  public:
    // writers: already loaded; outlives this.
    Client(rtrs::Reactor& reactor, rtrs::Random& random, rtrs::Tracer& tracer,
           ClientFabrics fabrics, WriterNumbers& writers);
    ~Client();  // ASSUMES: nothing is mapped, or stop() has reported

    // Sets up everything in the configuration. The error names what could not be set up. Blocks
    // while another process has an address, for in_use_timeout per address.
    std::expected<void, std::string> start(const ClientConfig& config);
    // Makes the files of NBD sockets anew that others have removed.
    void listen_again() { sockets_.listen_again(); }
    // Removes the files of NBD sockets. For a process that ends and has served nobody.
    void remove_files() noexcept { sockets_.remove_files(); }

    // Maps a device for rnbdctl. new_session: this session is made if there is none of its name.
    // done is called, possibly from inside this call, when the device is mapped, or when mapping
    // has failed and nothing is left of the device, so that the caller can go on at once.
    // ERRORS: exists, not_found (session), busy (leaving() is one, the session is closing), failed
    // (address in use, bad names), stopping.
    using Mapped = std::function<void(const std::expected<void, ControlFailure>&)>;
    void map(const ClientConfig::Device& device, const ClientConfig::Session* new_session,
             Mapped done);
    // What has this one's name or volume, and is still being unmapped. Null: nothing.
    const Mapping* leaving(const ClientConfig::Device& device) const noexcept;
    // done is called when the device is gone, and with it a session that was made for it; or when
    // it stays because it is used.
    // ERRORS: not_found, busy (clients are connected, the kernel's device is used).
    enum class Unmap : std::uint8_t { if_unused, by_force };
    // The device is gone. loss: a sentence that says which of its data may be lost; empty: none.
    struct Gone {
        std::string loss;
    };
    using Unmapped = std::function<void(const std::expected<Gone, ControlFailure>&)>;
    void unmap(const std::string& device, Unmap how, Unmapped done);
    // Makes a session for a new configuration.
    // ERRORS: exists, failed (another client on this machine has it, no RDMA device leads there),
    // stopping.
    std::expected<void, ControlFailure> make_session(const ClientConfig::Session& config);
    // done is called when the session is gone.
    // ERRORS: not_found, busy (it has devices), stopping.
    using Closed = std::function<void(std::expected<void, ControlFailure>)>;
    void close_session(const std::string& name, Closed done);
    // The configuration files name this session, so it stays even without devices.
    void keep_session(const ClientConfig::Session& config);
    // Only asks the session to add the path; rtrs/client.h says how that goes on.
    // ERRORS: not_found (session), exists (a path with these addresses), busy (another client on
    // this machine has it), failed, stopping.
    std::expected<void, ControlFailure> add_path(const std::string& session,
                                                 const ClientConfig::Path& path);
    // Asks a server for the exports that it has for a session. server: the name of a session of
    // ours, or "HOST:PORT". In the latter case the question goes over our session that has this
    // path, if there is one, else over a session with the name session_name, made for it.
    // ERRORS: not_found (no such session), bad_arguments, exists (the name is a session of ours),
    // busy (another client on this machine has it), failed, stopping. Then answered is not called.
    std::expected<void, ControlFailure> discover(const std::string& server,
                                                 const std::string& session_name,
                                                 rtrs::Duration timeout,
                                                 Discovery::Answered answered);
    // From now on, requests that wait for a path, or for a volume that is not open, fail after at
    // most this time, whatever the configuration says. For requests that wait already, the time
    // begins with this call. Nothing changes while a path is up. It also applies to sessions that
    // are made later. None: as configured.
    void limit_holding(std::optional<rtrs::Duration> limit);
    std::optional<rtrs::Duration> hold_limit() const noexcept { return hold_limit_; }
    // Ends everything, then calls done.
    void stop(std::function<void()> done);

    // The fabric of a path whose fabric was not given: RDMA if a device leads there, else TCP.
    ClientConfig::Path::Fabric fabric_towards(const ClientConfig::Path& path);
    // The number of the device that is mapped next.
    std::uint32_t free_number() const noexcept;

    struct Session;  // rnbd-client/client_session.h
    // Sets how long the session's requests wait: as its configuration says, within the limit.
    void set_waiting(Session& session);
    const std::map<std::string, std::unique_ptr<Session>>& sessions() const noexcept {
        return sessions_;
    }
    // ERRORS: not_found, stopping.
    std::expected<Session*, ControlFailure> find_session(const std::string& name) const;
    rtrs::Clock& clock() const noexcept { return reactor_; }
    const std::vector<std::unique_ptr<Mapping>>& mappings() const noexcept { return mappings_; }

  private:
    // If none of the session's paths has its device now: whether it waits for one. What is
    // configured does, so that it comes up at boot whatever comes first; what somebody asks for now
    // fails, since they see why.
    enum class Pathless : std::uint8_t { waits, fails };
    std::expected<Session*, std::string> add_session(const ClientConfig::Session& config,
                                                     Pathless pathless);
    // Finds the fabric.
    // ERRORS: no RDMA device leads there.
    std::expected<rtrs::PathAddress, rtrs::RdmaDevices::Error> address_of(
        const ClientConfig::Session& session, const ClientConfig::Path& path);
    Mapping& add_mapping(Session& session, const ClientConfig::Device& config);
    void writers_changed();
    // The session for a device that is about to be mapped.
    // ERRORS: as map().
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
    Session* session_towards(const ClientConfig::Path& server, const std::string& session_name);
    std::expected<void, ControlFailure> discover_apart(const ClientConfig::Path& server,
                                                       const std::string& name,
                                                       rtrs::Duration timeout,
                                                       Discovery::Answered answered);
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
    rtrs::Instant limited_at_{};  // when hold_limit_ was set
    std::function<void()> stopped_;
};

}  // namespace rnbd
