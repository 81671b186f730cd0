// What the control socket and the metrics server share: a listening socket, its connections, and
// the end of both. Classes derived from StreamConnection define what is said on a connection.
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

// One client. It waits for bytes, sends one text at a time, and has one time limit. After end()
// none of its handlers is called any more.
class StreamConnection {
  public:
    enum class Id : std::uint64_t {};
    struct Accepted {
        StreamServer& server;
        Id id;
        int fd;  // in blocking mode; the connection owns it from its constructor on
    };

    virtual ~StreamConnection();
    StreamConnection(const StreamConnection&) = delete;
    StreamConnection& operator=(const StreamConnection&) = delete;

    Id id() const noexcept { return id_; }
    // Called when the server knows the connection, which may wait and send from now on.
    virtual void begin() = 0;
    // Called when the server ends.
    virtual void farewell() { end(); }
    // Cuts the connection. May be called from its own handlers: the object is destroyed in a later
    // turn.
    void end();

  protected:
    explicit StreamConnection(const Accepted& accepted);

    // There is something to read, or the other side has ended.
    virtual void on_readable() = 0;
    // The whole text was handed to the socket.
    virtual void on_sent() = 0;
    // True if it waits for its client to ask for something, so that another client may take its
    // place.
    virtual bool is_idle() const = 0;

    int fd() const noexcept { return socket_.get(); }
    // on_readable() will be called once. Does nothing if it waits for that already.
    void await_readable();
    // Sends text, and after it `shared`, which other connections may send, too.
    // ASSUMES: !sending().
    void send(std::string text, std::shared_ptr<const std::string> shared = nullptr);
    bool sending() const noexcept { return sending_.in_flight; }
    bool ended() const noexcept { return ended_; }
    // Ends the connection after this time. It replaces an earlier limit.
    void limit_time(rtrs::Duration time);
    bool time_is_limited() const noexcept { return timer_.armed(); }
    void unlimit_time() noexcept { timer_.disarm(); }

  private:
    friend class StreamServer;

    void readable();
    void sent(std::int32_t result);
    void send_rest();
    void leave_if_idle();
    // Its client has taken nothing of its text for a while.
    bool stands_still() const noexcept;

    StreamServer& server_;
    const Id id_;
    const rtrs::Descriptor socket_;
    rtrs::MemberOperation<&StreamConnection::readable> reading_{*this};
    rtrs::MemberOperation<&StreamConnection::sent> sending_{*this};
    rtrs::Timer timer_;
    std::string output_;
    std::shared_ptr<const std::string> shared_output_;
    std::size_t sent_ = 0;     // bytes sent of both outputs together
    rtrs::Instant sent_at_{};  // when the last of them were, or the text was given
    std::array<iovec, 2> pieces_{};
    msghdr message_{};
    bool ended_ = false;
    bool left_ = false;
};

class StreamServer final : private rtrs::AcceptLoop::Handler {
  public:
    using Make =
        std::function<std::unique_ptr<StreamConnection>(const StreamConnection::Accepted&)>;

    // listener: listens, and is in blocking mode. connections_max: the limit at a time; one more
    // connection takes the place of the oldest idle one, or of the oldest whose client has taken
    // nothing of its text for stuck_time; if there is none, the new one is closed.
    StreamServer(rtrs::Reactor& reactor, rtrs::Descriptor listener, std::size_t connections_max,
                 Make make);
    // Whoever reads what it asked for takes something in less time than this. Without this those
    // who ask and never read would keep everybody else out.
    static constexpr rtrs::Duration stuck_time = std::chrono::seconds(2);
    ~StreamServer();  // ASSUMES: closed() was posted
    StreamServer(const StreamServer&) = delete;
    StreamServer& operator=(const StreamServer&) = delete;

    rtrs::Reactor& reactor() const noexcept { return reactor_; }
    // Null: it has gone.
    StreamConnection* find(StreamConnection::Id id) const;
    // From now on connections are accepted on this listener instead of the constructor's.
    // ASSUMES: close() was not called.
    void listen_on(rtrs::Descriptor listener) { accepting_.replace(std::move(listener)); }
    // Accepts no more connections, and calls farewell() on all. Called once. closed() comes in a
    // later turn.
    void close(std::function<void()> closed);

  private:
    friend class StreamConnection;

    void on_accepted(int fd) override;
    // Nothing to do: clients just have to wait.
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
