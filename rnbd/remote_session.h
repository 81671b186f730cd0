// One RTRS session with the RNBD protocol on it: what the volumes of one server share. In every new
// session SESS_INFO is exchanged, and then the volumes are opened (rnbd/remote_volume.h).
//
// LIFE: longer than its volumes. THREAD: the reactor's (rtrs/reactor.h), as rtrs/client.h has it;
// "the session's" in the headers of this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "rnbd/remote_catalog.h"
#include "rnbd/remote_figures.h"
#include "rtrs/client.h"

namespace rnbd {

class RemoteSessionHandler {
  public:
    // After close(): the session may be destroyed from inside this call.
    virtual void on_session_closed() = 0;
    // As of rtrs::ClientSessionHandler, for who wants to know.
    virtual void on_session_link_up() {}
    virtual void on_session_link_down(std::error_code /*reason*/) {}
    virtual void on_session_given_up(std::error_code /*error*/) {}
    virtual void on_session_path_changed(std::string_view /*label*/, rtrs::PathChange /*change*/,
                                         std::error_code /*reason*/) {}
    virtual void on_session_path_not_connected(std::string_view /*label*/,
                                               std::error_code /*reason*/,
                                               std::string_view /*text*/) {}
    virtual void on_session_path_gone(std::string_view /*label*/) {}
    // What the server says of an export that this session may open; also when it ends (draining).
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

    // Permits and sizes: permits_max() and max_io_bytes() are 0 until the link was up once.
    rtrs::ClientSession& rtrs() noexcept;
    // As rtrs::ClientSession has it; for requests that wait for a volume, too.
    void set_waiting(std::optional<rtrs::Duration> hold_time,
                     std::optional<rtrs::Duration> fail_fast_time,
                     std::optional<rtrs::ClientSessionOptions::HoldLimit> hold_limit = {});
    const std::string& name() const noexcept;
    // Requests that wait for their volume to be open: the session has not seen them.
    std::uint32_t waiting() const noexcept;
    // Of the server, if its session options want messages.
    RemoteCatalog& catalog() noexcept;
    RemoteFigures& figures() noexcept;

    struct Inside;

  private:
    friend class RemoteVolume;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rnbd
