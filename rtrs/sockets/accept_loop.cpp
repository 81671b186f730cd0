#include "rtrs/sockets/accept_loop.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/member_call.h"

namespace rtrs {
namespace {

// Out of descriptors or memory: what frees some is not announced.
constexpr Duration accept_pause = std::chrono::milliseconds(100);

}  // namespace

AcceptLoop::AcceptLoop(Reactor& reactor, Handler& handler)
    : reactor_(reactor),
      handler_(handler),
      accept_again_(reactor, this, member_call<&AcceptLoop::accept>) {}

AcceptLoop::~AcceptLoop() { Reactor::cancel_turn_end(turn_end_); }

void AcceptLoop::start(Descriptor listener) {
    RTRS_ASSERT(idle());
    listener_ = std::move(listener);
    accept();
}

void AcceptLoop::accept() { reactor_.accept(accepting_, listener_.get()); }

void AcceptLoop::replace(Descriptor listener) {
    RTRS_ASSERT(running());
    // What is under way goes on with the new one at its end, as a pause does. The number of the old
    // one lives as long as the ring may use it.
    if (accepting_.in_flight) reactor_.cancel(accepting_);
    reactor_.close_fd(std::exchange(listener_, std::move(listener)).release());
}

void AcceptLoop::stop() {
    RTRS_ASSERT(running());
    stopping_ = true;
    accept_again_.disarm();
    // Frees the address at once. The number stays for the same reason.
    ::shutdown(listener_.get(), SHUT_RDWR);
    if (accepting_.in_flight) return reactor_.cancel(accepting_);
    reactor_.post([this] { end(); });
}

void AcceptLoop::on_accepted(const Operation::Result& result) {
    if (stopping_) {
        if (result.value >= 0) reactor_.close_fd(result.value);
        return reactor_.at_turn_end(turn_end_);
    }
    if (result.value >= 0) {
        cannot_accept_ = false;
        accept();
        return handler_.on_accepted(result.value);
    }
    // Of a single connection, which came and went; or of the socket before this one.
    const bool of_one =
        result.value == -ECONNABORTED || result.value == -EINTR || result.value == -ECANCELED;
    if (of_one) return accept();
    accept_again_.arm(reactor_.now() + accept_pause);
    if (!std::exchange(cannot_accept_, true)) {
        handler_.on_cannot_accept(from_errno(result.value));
    }
}

void AcceptLoop::end() {
    reactor_.close_fd(listener_.release());
    handler_.on_accept_stopped();
}

}  // namespace rtrs
