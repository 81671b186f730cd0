// Takes in the connections of a listening socket, one per turn of the loop: whoever keeps its queue
// filled does not keep the loop.
//
// OWNER: a server of any kind. THREAD: the reactor's (rtrs/reactor.h).
// LIFE: made -> start() -> stop() -> on_accept_stopped() -> destroyed. If the reactor has ended, it
// may be destroyed at any time.
#pragma once

#include <system_error>

#include "rtrs/base/descriptor.h"
#include "rtrs/reactor.h"

namespace rtrs {

class AcceptLoop {
  public:
    class Handler {
      public:
        // fd: the handler's from now on; it blocks.
        virtual void on_accepted(int fd) = 0;
        // Descriptors or memory are short; it is tried again soon. Told once, until one comes in.
        virtual void on_cannot_accept(std::error_code error) = 0;
        // After stop(), in a later turn: nobody listens any more. The loop may be destroyed from
        // inside this call.
        virtual void on_accept_stopped() = 0;

      protected:
        ~Handler() = default;
    };

    // reactor and handler outlive it.
    AcceptLoop(Reactor& reactor, Handler& handler);
    ~AcceptLoop();
    AcceptLoop(const AcceptLoop&) = delete;
    AcceptLoop& operator=(const AcceptLoop&) = delete;

    // listener: listens, and blocks. Once.
    void start(Descriptor listener);
    // From now on they come in on this one instead; who waits in the queue of the former is lost.
    // ASSUMES: running.
    void replace(Descriptor listener);
    // Its address is free at once, and nobody comes in from now on. Once, if it was started.
    void stop();
    // Started, and not stopped.
    bool running() const noexcept { return listener_ && !stopping_; }
    // Neither listens nor has anything with the ring.
    bool idle() const noexcept { return !listener_ && !accepting_.in_flight; }
    // Of the socket; -1: it does not listen.
    int fd() const noexcept { return listener_.get(); }

  private:
    void accept();
    void on_accepted(const Operation::Result& result);
    void end();

    Reactor& reactor_;
    Handler& handler_;
    Descriptor listener_;
    bool stopping_ = false;
    bool cannot_accept_ = false;  // as the handler was told
    Timer accept_again_;
    MemberOperation<&AcceptLoop::on_accepted> accepting_{*this};
    MemberTask<&AcceptLoop::end> turn_end_{*this};
};

}  // namespace rtrs
