// One RTRS session with the RNBD protocol on it, which the volumes of one server share. Each time
// the link comes up, SESS_INFO is exchanged, and then the volumes are opened
// (rnbd/remote_volume.h).
//
// LIFE: a session outlives its volumes.
// THREAD: the reactor's (rtrs/reactor.h), as rtrs/client.h says. The headers of this folder call it
// "the session's".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "rnbd/remote_catalog.h"
#include "rnbd/remote_statistics.h"
#include "rtrs/client.h"

namespace rnbd {

class RemoteSessionHandler {
  public:
    // After close(): the session may be destroyed from inside this call.
    virtual void on_session_closed() = 0;
    // These pass on the calls of rtrs::ClientSessionHandler; overriding them is optional.
    virtual void on_session_link_up() {}
    virtual void on_session_link_down(std::error_code /*reason*/) {}
    virtual void on_session_given_up(std::error_code /*error*/) {}
    virtual void on_session_path_changed(std::string_view /*label*/, rtrs::PathChange /*change*/,
                                         std::error_code /*reason*/) {}
    virtual void on_session_path_not_connected(std::string_view /*label*/,
                                               std::error_code /*reason*/,
                                               std::string_view /*text*/) {}
    virtual void on_session_path_gone(std::string_view /*label*/) {}
    // What the server says about an export that this session may open, or about itself (it drains,
    // or is about to end).
    virtual void on_catalog_event(const CatalogEvent& event) { static_cast<void>(event); }

  protected:
    ~RemoteSessionHandler() = default;
};

class RemoteSession {
  public:
    RemoteSession(rtrs::SessionEnvironment environment, rtrs::ClientSessionOptions options,
                  RemoteSessionHandler& handler);
    ~RemoteSession();  // ASSUMES: never opened, or on_session_closed was delivered
    RemoteSession(const RemoteSession&) = delete;
    RemoteSession& operator=(const RemoteSession&) = delete;

    // ERRORS: as rtrs::ClientSession::open().
    std::error_code open();
    // ASSUMES: every volume was closed.
    void close();

    // For permits and sizes. permits_max() and max_io_bytes() are 0 until the link was up once.
    rtrs::ClientSession& rtrs() noexcept;
    // As rtrs::ClientSession::set_waiting(); it also applies to requests that wait for a volume.
    void set_waiting(std::optional<rtrs::Duration> hold_time,
                     std::optional<rtrs::Duration> fail_fast_time,
                     std::optional<rtrs::ClientSessionOptions::HoldLimit> hold_limit = {});
    const std::string& name() const noexcept;
    // How many requests wait for their volume to be open. The RTRS session does not know them.
    std::uint32_t waiting() const noexcept;
    // The server's catalog and statistics, if the session options ask for messages.
    RemoteCatalog& catalog() noexcept;
    RemoteStatistics& statistics() noexcept;

    struct Inside;

  private:
    friend class RemoteVolume;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rnbd
