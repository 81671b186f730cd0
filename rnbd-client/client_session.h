// A session of the client daemon: what it was made from, its paths, and what belongs to it alone.
//
// OWNER: Client, until session_closed(). THREAD: the reactor's (rtrs/reactor.h).
// LIFE: made, its lock taken for each address -> remote.open() -> closing and remote.close() ->
// on_session_closed(), in which Client destroys it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "rnbd-client/client.h"
#include "rnbd-client/config.h"
#include "rnbd-client/discovery.h"
#include "rnbd-client/permit_shares.h"
#include "rnbd/awaited_paths.h"
#include "rnbd/identity/session_lock.h"
#include "rnbd/remote_session.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/error.h"

namespace rnbd {

struct Client::Session final : RemoteSessionHandler, AwaitedPaths::Owner {
    // its_client: outlives this.
    Session(Client& its_client, rtrs::SessionEnvironment environment,
            rtrs::ClientSessionOptions options, ClientConfig::Session its_config);

    // The configuration of one of its paths; label: Path::to_string().
    static ClientConfig::Path path_of(std::string_view label, rtrs::PathPriority priority);
    // The paths that it has now, with those that wait for a device; config has those that it began
    // with.
    std::vector<ClientConfig::Path> paths();
    // Does not wait for a device for that path any more. False: it did not.
    bool forget_awaited(std::string_view label);
    // ERRORS: ENOENT.
    std::error_code set_path_priority(const ClientConfig::Path& path) noexcept;
    // The present configuration of the session, whoever has changed it.
    ClientConfig::Session now();
    // True if another client has its name: the session does not come back by itself, and accepts no
    // new requests.
    bool taken_over() noexcept { return remote.rtrs().refuses_new() == rtrs::Error::rejected; }
    // Releases the lock for an address to which none of its paths leads; another client may have
    // it.
    void release_lock(const std::string& destination);

    void on_session_closed() override { client.session_closed(*this); }
    void on_session_path_gone(std::string_view label) override;
    void on_catalog_event(const CatalogEvent& event) override;
    bool may_add_awaited() const noexcept override;
    std::optional<rtrs::RdmaDevices::Error> add_awaited(const AwaitedPath& path) override;
    void on_awaited(const AwaitedPath& path) override;

    Client& client;
    ClientConfig::Session config;
    SessionLock lock;
    RemoteSession remote;
    CatalogQuestions questions;
    PermitShares shares;  // of its devices
    // Made by rnbdctl map --path: the session ends with its last device.
    bool temporary = false;
    bool closing = false;
    std::vector<std::string> cut_off;  // labels of paths, until the overdue devices have gone
    rtrs::Timer connect_timer;         // while these paths are not closed yet
    AwaitedPaths awaited;
    Closed closed;
};

}  // namespace rnbd
