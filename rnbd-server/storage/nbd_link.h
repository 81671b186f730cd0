// A connection to an NBD server, by libnbd, driven by the reactor once it is made. Until then, for
// the look-up of the server's name and the handshake, it is a thread's, which is waited for only
// for a moment.
//
// OWNER: itself from attach() on; NbdStorage calls detach(). THREAD: the reactor's
// (rtrs/reactor.h).
// LIFE: open() -> attach() -> ... -> detach() -> destroyed when its last poll has completed.
#pragma once

#include <expected>
#include <memory>
#include <string>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/descriptor_room.h"
#include "rtrs/reactor.h"

struct nbd_handle;

namespace rnbd {

class NbdLinkOwner {
  public:
    // Some requests may have completed, from inside libnbd; more can be submitted now.
    virtual void on_link_ready() = 0;
    // The connection is lost. The requests in it have completed before, with an error. The owner
    // has to call detach() now.
    virtual void on_link_lost(const std::string& reason) = 0;

  protected:
    ~NbdLinkOwner() = default;
};

class NbdLink {
  public:
    ~NbdLink();
    NbdLink(const NbdLink&) = delete;
    NbdLink& operator=(const NbdLink&) = delete;

    // Connects and does the handshake. Waits a moment for that, unless there was much waiting
    // lately. If it takes longer, it goes on at the next call for the same URI, which should come
    // soon and does not wait.
    // ERRORS: EINPROGRESS (call again), EINVAL (URI), ECONNREFUSED, ENOENT, EIO (handshake), EMFILE
    // (there is no room for its descriptor).
    static std::expected<std::unique_ptr<NbdLink>, StorageError> open(const std::string& uri,
                                                                      DescriptorRoom::For whom);

    // The link begins to watch its socket. It lives until shortly after detach().
    static NbdLink& attach(std::unique_ptr<NbdLink> link, rtrs::Reactor& reactor,
                           NbdLinkOwner& owner);
    // Says goodbye to the server. The caller must not use the link afterwards.
    // ASSUMES: no request is in flight.
    void detach();

    nbd_handle* handle() noexcept { return handle_; }
    bool alive() const noexcept;
    // Called after requests were submitted to the handle: data that does not fit into the socket is
    // sent later.
    void sent();
    // Ends the connection, whatever is in flight. on_link_lost() comes in a later turn.
    void cut() noexcept;

  private:
    explicit NbdLink(nbd_handle* handle) noexcept : handle_(handle) {}
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
