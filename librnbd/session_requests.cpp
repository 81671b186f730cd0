// Session: requests between the program and the loop, buffers.
#include <cerrno>
#include <utility>

#include "librnbd/session.h"
#include "librnbd/uncancelled.h"

namespace rnbd::library {

// --- Requests.

// From another thread, with the lock held, which the loop waits for. If there is no memory to tell
// the loop, the request is not taken.
void Session::queue(Request& request) {
    if (inbox_.empty()) {
        const Uncancelled here;
        loop_->reactor().post([this] { take_in(); });
    }
    inbox_.push_back(request);
}

void Session::take_in() {
    rtrs::IntrusiveList<Request> now;
    {
        const auto lock = loop_->lock();
        while (!inbox_.empty()) now.push_back(inbox_.pop_front());
    }
    while (!now.empty()) start_request(now.pop_front());
}

// What was begun cannot be taken back: without memory the process ends, as in the loop.
void Session::start_request(Request& request) noexcept {
    ++request.volume->requests;
    if (request.volume->closing()) return requests_->fail_later(request, rtrs::Error::closed);
    if (request.operation == VolumeOperation::flush) request.stage = Request::Stage::flush_due;
    requests_->start(request);
}

void Session::finished(Request& request) {
    Volume& volume = *request.volume;
    const rnbd_done_fn done = request.done;
    void* const context = request.context;
    const int result = -rtrs::to_errno(request.error);
    if (request.buffer != nullptr) {
        request.buffer->in_flight.store(false, std::memory_order_release);
    }
    if (loop_->threaded()) {
        spent_.push_back(request);
        loop_->reactor().at_turn_end(given_back_);
    } else {
        pool_.put(request);
    }
    done(context, result);
    loop_->told();
    turn_news_.answered();
    volume.request_ended();
}

void Session::give_back() {
    const auto lock = loop_->lock();
    while (!spent_.empty()) pool_.put(spent_.pop_front());
}

// --- Buffers.

int Session::get_buffer(Buffer*& buffer) {
    return on_loop([&] {
        if (state_ != State::running) return error.set(-ESHUTDOWN, "the session is closing");
        if (remote_->rtrs().permits_max() == 0) {
            return error.set(-ENOTCONN, "the session was never connected");
        }
        if (!requests_->has_room_for_buffer()) {
            return requests_->is_idle()
                       ? error.set(-ENOBUFS, "all buffers of the session are taken")
                       : error.set(-EAGAIN, "all others have requests under way");
        }
        auto permit = remote_->rtrs().try_take();
        if (!permit) return error.set(-EAGAIN, "all others have requests under way");
        const rtrs::MutableBytes memory = permit->payload();
        buffer = new Buffer{this, std::move(*permit), memory, false};
        requests_->set_buffers(++buffers_);
        return 0;
    });
}

int Session::put_buffer(Buffer& buffer) {
    return on_loop([&] {
        if (buffer.in_flight) return error.set(-EBUSY, "the buffer has a request under way");
        requests_->set_buffers(--buffers_);
        delete &buffer;
        return 0;
    });
}

}  // namespace rnbd::library
