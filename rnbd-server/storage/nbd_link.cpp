#include "rnbd-server/storage/nbd_link.h"

#include <libnbd.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <unordered_set>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

using Clock = std::chrono::steady_clock;

// What the beginning of a connection may cost the other exports; all of them together cost no more
// than a tenth of the time.
constexpr Clock::duration open_slice = std::chrono::milliseconds(20);
constexpr int open_share = 10;

std::string last_error() {
    const char* text = nbd_get_error();
    std::string line = text != nullptr ? text : "it failed";
    for (char& c : line) c = c == '\n' ? ' ' : c;
    return line;
}

StorageError failure(const std::string& uri, int error, const std::string& text) {
    return {rtrs::from_errno(error != 0 ? error : EIO), uri + ": " + text};
}

// Handshakes that took longer than one attempt, by URI; of the thread of the reactor.
std::map<std::string, std::unique_ptr<NbdLink>>& unfinished() {
    thread_local std::map<std::string, std::unique_ptr<NbdLink>> links;
    return links;
}

// Links that own themselves; of the thread of the reactor. Never destroyed: the process may end,
// with its reactor, before a link's last polls have completed, whose memory it is until then.
std::unordered_set<const NbdLink*>& attached() {
    static auto& links = *new std::unordered_set<const NbdLink*>;
    return links;
}

// How long the thread of the reactor may still wait for NBD servers.
class Patience {
  public:
    Clock::duration left() noexcept {
        const Clock::time_point now = Clock::now();
        left_ = std::min(open_slice, left_ + (now - seen_) / open_share);
        seen_ = now;
        return left_;
    }
    void spend(Clock::duration waited) noexcept { left_ -= waited; }

  private:
    Clock::duration left_ = open_slice;
    Clock::time_point seen_ = Clock::now();
};

Patience& patience() {
    thread_local Patience the_patience;
    return the_patience;
}

bool wait_for(nbd_handle* handle, Clock::time_point deadline) {
    const auto left = std::max(Clock::duration::zero(), deadline - Clock::now());
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const unsigned direction = nbd_aio_get_direction(handle);
    pollfd ready{.fd = nbd_aio_get_fd(handle), .events = 0, .revents = 0};
    if ((direction & LIBNBD_AIO_DIRECTION_READ) != 0) ready.events |= POLLIN;
    if ((direction & LIBNBD_AIO_DIRECTION_WRITE) != 0) ready.events |= POLLOUT;
    return ::poll(&ready, 1, static_cast<int>(left_ms)) > 0;
}

}  // namespace

NbdLink::~NbdLink() {
    RTRS_ASSERT(!readable_.in_flight && !writable_.in_flight);
    attached().erase(this);
    nbd_close(handle_);
}

std::expected<std::unique_ptr<NbdLink>, StorageError> NbdLink::open(const std::string& uri) {
    std::unique_ptr<NbdLink> link;
    // A server that is silent so long may be so for ever, and is asked again soon.
    Clock::duration slice{0};
    if (auto started = unfinished().extract(uri)) {
        link = std::move(started.mapped());
    } else {
        nbd_handle* const handle = nbd_create();
        if (handle == nullptr) return std::unexpected(failure(uri, ENOMEM, last_error()));
        link.reset(new NbdLink(handle));
        if (nbd_aio_connect_uri(handle, uri.c_str()) != 0) {
            return std::unexpected(failure(uri, nbd_get_errno(), last_error()));
        }
        slice = patience().left();
    }
    const Clock::time_point begun = Clock::now();
    const Progress progress = link->negotiate(begun + slice);
    if (slice > Clock::duration::zero()) patience().spend(Clock::now() - begun);
    switch (progress) {
        case Progress::ready:
            return link;
        case Progress::failed:
            return std::unexpected(failure(uri, nbd_get_errno(), last_error()));
        case Progress::in_progress:
            break;
    }
    unfinished().emplace(uri, std::move(link));
    return std::unexpected(failure(uri, EINPROGRESS, "still connecting to the NBD server"));
}

NbdLink::Progress NbdLink::negotiate(std::chrono::steady_clock::time_point deadline) {
    for (;;) {
        if (nbd_aio_is_ready(handle_) == 1) return Progress::ready;
        if (nbd_aio_is_dead(handle_) == 1 || nbd_aio_is_closed(handle_) == 1) {
            return Progress::failed;
        }
        const unsigned direction = nbd_aio_get_direction(handle_);
        if (!wait_for(handle_, deadline)) return Progress::in_progress;
        const int stepped = (direction & LIBNBD_AIO_DIRECTION_WRITE) != 0
                                ? nbd_aio_notify_write(handle_)
                                : nbd_aio_notify_read(handle_);
        if (stepped != 0) return Progress::failed;
    }
}

NbdLink& NbdLink::attach(std::unique_ptr<NbdLink> link, rtrs::Reactor& reactor,
                         NbdLinkOwner& owner) {
    NbdLink& self = *link.release();
    attached().insert(&self);
    self.reactor_ = &reactor;
    self.owner_ = &owner;
    self.arm();
    return self;
}

void NbdLink::detach() {
    owner_ = nullptr;
    // Its own goodbye; the server finishes with what it has either way.
    if (!lost_) nbd_aio_disconnect(handle_, 0);
    reactor_->cancel(readable_);
    reactor_->cancel(writable_);
    release();
}

// The kernel lets go of the polls in a turn of its own.
void NbdLink::release() {
    if (!readable_.in_flight && !writable_.in_flight) delete this;
}

// One call takes at most one answer out of the socket, so it is repeated as long as there is more.
// Only then: a handle that looks for an answer in vain sends nothing before it has one.
void NbdLink::receive() {
    if (owner_ == nullptr) return release();
    while (alive() && (nbd_aio_get_direction(handle_) & LIBNBD_AIO_DIRECTION_READ) != 0 &&
           ready(POLLIN) && nbd_aio_notify_read(handle_) == 0) {
    }
    look();
}

bool NbdLink::ready(short events) const noexcept {
    pollfd now{.fd = nbd_aio_get_fd(handle_), .events = events, .revents = 0};
    return ::poll(&now, 1, 0) == 1;
}

void NbdLink::sent() {
    if (owner_ == nullptr) return release();
    while (!writable_.in_flight && nbd_aio_is_processing(handle_) == 1 &&
           (nbd_aio_get_direction(handle_) & LIBNBD_AIO_DIRECTION_WRITE) != 0) {
        if (!ready(POLLOUT) || nbd_aio_notify_write(handle_) != 0) break;
    }
    look();
}

void NbdLink::cut() noexcept { ::shutdown(nbd_aio_get_fd(handle_), SHUT_RDWR); }

bool NbdLink::alive() const noexcept {
    return nbd_aio_is_ready(handle_) == 1 || nbd_aio_is_processing(handle_) == 1;
}

void NbdLink::look() {
    if (alive()) {
        owner_->on_link_ready();
        return arm();
    }
    lost_ = true;
    owner_->on_link_lost(last_error());
}

void NbdLink::arm() {
    const int fd = nbd_aio_get_fd(handle_);
    if (!readable_.in_flight) reactor_->poll_readable(readable_, fd);
    const bool blocked = (nbd_aio_get_direction(handle_) & LIBNBD_AIO_DIRECTION_WRITE) != 0;
    if (blocked && !writable_.in_flight) reactor_->poll_writable(writable_, fd);
}

}  // namespace rnbd
