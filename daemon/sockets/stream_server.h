// What the control socket and the metrics share: a listening socket, the connections that come in
// on it, and the end of both. What is said on a connection is for those that derive from it.
//
// OWNER: a server of the daemon. THREAD: the reactor's (rtrs/reactor.h).
// LIFE: made -> close() -> closed() -> destroyed.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "rtrs/base/descriptor.h"
#include "rtrs/reactor.h"
#include "rtrs/sockets/accept_loop.h"

namespace rnbd {

class StreamServer;

// One client. It waits for bytes, sends one text at a time, and has one time limit. Of its handlers
// none is called any more after end().
class StreamConnection {
  public:
    enum class Id : std::uint64_t {};
    struct Accepted {
        StreamServer& server;
        Id id;
        int fd;  // blocks; the connection's from its constructor on
    };

    virtual ~StreamConnection();
    StreamConnection(const StreamConnection&) = delete;
    StreamConnection& operator=(const StreamConnection&) = delete;

    Id id() const noexcept { return id_; }
    // The server knows it: it may wait and send.
    virtual void begin() = 0;
    // The server ends.
    virtual void farewell() { end(); }
    // Cuts it. May be called from its own handlers: the object goes in a later turn.
    void end();

  protected:
    explicit StreamConnection(const Accepted& accepted);

    // Something can be read, or the other side has ended.
    virtual void on_readable() = 0;
    // The whole text is on its way.
    virtual void on_sent() = 0;
    // It waits for its client to ask for something, so that another client may have its place.
    virtual bool is_idle() const = 0;

    int fd() const noexcept { return socket_.get(); }
    // on_readable() comes once. Nothing if that is waited for already.
    void await_readable();
    // And behind it what others may be sent, too. ASSUMES: !sending().
    void send(std::string text, std::shared_ptr<const std::string> shared = nullptr);
    bool sending() const noexcept { return sending_.in_flight; }
    bool ended() const noexcept { return ended_; }
    // Ends it then, in place of an earlier limit.
    void limit_time(rtrs::Duration time);
    bool time_is_limited() const noexcept { return timer_.armed(); }
    void unlimit_time() noexcept { timer_.disarm(); }

  private:
    friend class StreamServer;

    void readable();
    void sent(std::int32_t result);
    void send_rest();
    void leave_if_idle();

    StreamServer& server_;
    const Id id_;
    const rtrs::Descriptor socket_;
    rtrs::MemberOperation<&StreamConnection::readable> reading_{*this};
    rtrs::MemberOperation<&StreamConnection::sent> sending_{*this};
    rtrs::Timer timer_;
    std::string output_;
    std::shared_ptr<const std::string> shared_output_;
    std::size_t sent_ = 0;  // of both
    std::array<iovec, 2> pieces_{};
    msghdr message_{};
    bool ended_ = false;
    bool left_ = false;
};

class StreamServer final : private rtrs::AcceptLoop::Handler {
  public:
    using Make =
        std::function<std::unique_ptr<StreamConnection>(const StreamConnection::Accepted&)>;

    // listener: listens, and blocks. connections_max: at one time; one more takes the place of the
    // oldest that is idle, and is closed if none is.
    StreamServer(rtrs::Reactor& reactor, rtrs::Descriptor listener, std::size_t connections_max,
                 Make make);
    ~StreamServer();  // ASSUMES: closed() was posted
    StreamServer(const StreamServer&) = delete;
    StreamServer& operator=(const StreamServer&) = delete;

    rtrs::Reactor& reactor() const noexcept { return reactor_; }
    // Null: it has gone.
    StreamConnection* find(StreamConnection::Id id) const;
    // New connections come in on this one from now on, as with the constructor's. ASSUMES: not
    // closed.
    void listen_on(rtrs::Descriptor listener) { accepting_.replace(std::move(listener)); }
    // Lets nobody in any more and says farewell to all. Once. closed() comes in a later turn.
    void close(std::function<void()> closed);

  private:
    friend class StreamConnection;

    void on_accepted(int fd) override;
    // What its clients see is that they wait.
    void on_cannot_accept(std::error_code) override {}
    void on_accept_stopped() override { close_when_empty(); }
    bool make_room();
    void forget(StreamConnection::Id id);
    void close_when_empty();

    rtrs::Reactor& reactor_;
    const std::size_t connections_max_;
    const Make make_;
    rtrs::AcceptLoop accepting_;
    std::map<StreamConnection::Id, std::unique_ptr<StreamConnection>> connections_;
    std::uint64_t connections_ever_ = 0;
    bool closing_ = false;
    bool closed_posted_ = false;
    std::function<void()> closed_;
};

}  // namespace rnbd
