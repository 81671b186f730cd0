// Accepts the connections of a listening socket, one per turn of the loop, so that whoever keeps
// its queue filled does not monopolise the loop.
//
// OWNER: a server of any kind. THREAD: the reactor's (rtrs/reactor.h).
// LIFE: made -> start() -> stop() -> on_accept_stopped() -> destroyed. If the reactor has ended,
// the loop may be destroyed at any time.
#pragma once

#include <system_error>

#include "rtrs/base/descriptor.h"
#include "rtrs/reactor.h"

namespace rtrs {

class AcceptLoop {
  public:
    class Handler {
      public:
        // fd: belongs to the handler from now on; it is in blocking mode.
        virtual void on_accepted(int fd) = 0;
        // Descriptors or memory are short; the loop tries again soon. Called once, until a
        // connection is accepted.
        virtual void on_cannot_accept(std::error_code error) = 0;
        // Called in a turn after stop(): nobody listens any more. The loop may be destroyed from
        // inside this call.
        virtual void on_accept_stopped() = 0;

      protected:
        ~Handler() = default;
    };

    // reactor and handler outlive the loop.
    AcceptLoop(Reactor& reactor, Handler& handler);
    ~AcceptLoop();
    AcceptLoop(const AcceptLoop&) = delete;
    AcceptLoop& operator=(const AcceptLoop&) = delete;

    // listener: a listening socket in blocking mode. To be called once.
    void start(Descriptor listener);
    // From now on connections are accepted on this socket instead. Those that wait in the queue of
    // the old one are lost.
    // ASSUMES: running.
    void replace(Descriptor listener);
    // The socket's address is free at once, and no connection is accepted from now on. To be called
    // once, if the loop was started.
    void stop();
    // Started and not stopped.
    bool running() const noexcept { return listener_ && !stopping_; }
    // Neither listens nor has an operation in the ring.
    bool idle() const noexcept { return !listener_ && !accepting_.in_flight; }
    // The listening socket; -1: none.
    int fd() const noexcept { return listener_.get(); }

  private:
    void accept();
    void on_accepted(const Operation::Result& result);
    void end();

    Reactor& reactor_;
    Handler& handler_;
    Descriptor listener_;
    bool stopping_ = false;
    bool cannot_accept_ = false;  // and the handler was told so
    Timer accept_again_;
    MemberOperation<&AcceptLoop::on_accepted> accepting_{*this};
    MemberTask<&AcceptLoop::end> turn_end_{*this};
};

}  // namespace rtrs
