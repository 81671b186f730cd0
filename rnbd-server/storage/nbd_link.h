// A connection to an NBD server, by libnbd, driven by the reactor: no waiting but for a moment
// while it is opened, and no thread but one that looks up the server's name then.
//
// OWNER: itself from attach() on; NbdStorage says detach(). THREAD: the reactor's (rtrs/reactor.h).
// LIFE: open() -> attach() -> ... -> detach() -> gone when its last poll has completed.
#pragma once

#include <chrono>
#include <expected>
#include <memory>
#include <string>

#include "rnbd-server/storage.h"
#include "rtrs/reactor.h"

struct nbd_handle;

namespace rnbd {

class NbdLinkOwner {
  public:
    // Some requests may have completed, from inside of libnbd; now more may be given to it.
    virtual void on_link_ready() = 0;
    // The connection is no more. Requests in it have completed, with an error, before. To be
    // detached now.
    virtual void on_link_lost(const std::string& reason) = 0;

  protected:
    ~NbdLinkOwner() = default;
};

class NbdLink {
  public:
    ~NbdLink();
    NbdLink(const NbdLink&) = delete;
    NbdLink& operator=(const NbdLink&) = delete;

    // Connects and shakes hands; waits a moment for it, if not much was waited lately. What takes
    // longer goes on at the next call for the same URI, which is to come soon and does not wait.
    // ERRORS: EINPROGRESS (call again), EINVAL (URI), ECONNREFUSED, ENOENT, EIO (handshake).
    static std::expected<std::unique_ptr<NbdLink>, StorageError> open(const std::string& uri);

    // Begins to listen. The link lives until detach() and shortly after.
    static NbdLink& attach(std::unique_ptr<NbdLink> link, rtrs::Reactor& reactor,
                           NbdLinkOwner& owner);
    // Says goodbye to the server. ASSUMES: no request is in flight. Not used any more after it.
    void detach();

    nbd_handle* handle() noexcept { return handle_; }
    bool alive() const noexcept;
    // After requests were given to the handle: what does not fit into the socket is sent later.
    void sent();
    // Ends the connection, whatever is in flight: on_link_lost() comes in a later turn.
    void cut() noexcept;

  private:
    enum class Progress : std::uint8_t { ready, in_progress, failed };

    explicit NbdLink(nbd_handle* handle) noexcept : handle_(handle) {}
    // Goes on until then, and as far as it goes without waiting.
    Progress negotiate(std::chrono::steady_clock::time_point deadline);
    bool ready(short events) const noexcept;
    void receive();
    void look();
    void arm();
    void release();

    nbd_handle* handle_;
    rtrs::Reactor* reactor_ = nullptr;
    NbdLinkOwner* owner_ = nullptr;  // null: detached
    rtrs::MemberOperation<&NbdLink::receive> readable_{*this};
    rtrs::MemberOperation<&NbdLink::sent> writable_{*this};
    bool lost_ = false;
};

}  // namespace rnbd
