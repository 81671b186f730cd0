#include "rnbd-server/storage/nbd_link.h"

#include <libnbd.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "rnbd-server/storage/patience.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/start_thread.h"

namespace rnbd {
namespace {

using Clock = std::chrono::steady_clock;

// What the beginning of a connection may cost the other exports; all of them together cost no more
// than a tenth of the time.
constexpr Clock::duration open_slice = std::chrono::milliseconds(20);
constexpr int open_share = 10;
// Who wants a connection asks again sooner.
constexpr Clock::duration abandoned_after = std::chrono::seconds(10);

std::string last_error() {
    const char* text = nbd_get_error();
    std::string line = text != nullptr ? text : "it failed";
    for (char& c : line) c = c == '\n' ? ' ' : c;
    return line;
}

StorageError failure(const std::string& uri, int error, const std::string& text) {
    return {rtrs::from_errno(error != 0 ? error : EIO), uri + ": " + text};
}

// The look-up of the server's name, and the beginning of the connection, by a thread of its own:
// libnbd waits in it for a name server that does not answer.
class Connecting {
  public:
    // ERRORS: ENOMEM, EAGAIN (no thread).
    static std::expected<std::shared_ptr<Connecting>, StorageError> begin(const std::string& uri) {
        nbd_handle* const handle = nbd_create();
        if (handle == nullptr) return std::unexpected(failure(uri, ENOMEM, last_error()));
        auto made = std::make_shared<Connecting>(handle);
        auto thread = rtrs::start_thread([made, uri] { made->connect(uri); }, "rnbd-nbd-dial");
        if (!thread) {
            return std::unexpected(failure(uri, thread.error().value(), thread.error().message()));
        }
        // With nobody left who waits for it, the handle goes when the call has ended.
        thread->detach();
        return made;
    }
    explicit Connecting(nbd_handle* handle) noexcept : handle_(handle) {}
    ~Connecting() {
        if (handle_ != nullptr) nbd_close(handle_);
    }
    Connecting(const Connecting&) = delete;
    Connecting& operator=(const Connecting&) = delete;

    bool wait_until(Clock::time_point deadline) {
        std::unique_lock lock(mutex_);
        return over_.wait_until(lock, deadline, [this] { return is_over_; });
    }
    // These once that is over.
    int error() const noexcept { return error_; }
    const std::string& text() const noexcept { return text_; }
    nbd_handle* take_handle() noexcept { return std::exchange(handle_, nullptr); }

  private:
    void connect(const std::string& uri) {
        const bool failed = nbd_aio_connect_uri(handle_, uri.c_str()) != 0;
        const std::scoped_lock lock(mutex_);
        if (failed) {
            error_ = nbd_get_errno() != 0 ? nbd_get_errno() : EIO;
            text_ = last_error();
        }
        is_over_ = true;
        over_.notify_all();
    }

    nbd_handle* handle_;
    std::mutex mutex_;
    std::condition_variable over_;
    bool is_over_ = false;  // guarded by mutex_, as the next two
    int error_ = 0;
    std::string text_;
};

// One of the two.
struct Attempt {
    std::shared_ptr<Connecting> connecting{};
    std::unique_ptr<NbdLink> link{};
    Clock::time_point asked{};
};

// What took longer than one call, by URI; of the thread of the reactor.
std::map<std::string, Attempt>& unfinished() {
    thread_local std::map<std::string, Attempt> attempts;
    return attempts;
}

// Links that own themselves; of the thread of the reactor. Never destroyed: the process may end,
// with its reactor, before a link's last polls have completed, whose memory it is until then.
std::unordered_set<const NbdLink*>& attached() {
    static auto& links = *new std::unordered_set<const NbdLink*>;
    return links;
}

Patience& patience() {
    thread_local Patience the_patience(open_slice, open_share);
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
    const Clock::time_point begun = Clock::now();
    Attempt attempt;
    // A server that is silent so long may be so for ever, and is asked again soon.
    Clock::duration slice{0};
    if (auto started = unfinished().extract(uri)) {
        attempt = std::move(started.mapped());
    } else {
        auto connecting = Connecting::begin(uri);
        if (!connecting) return std::unexpected(connecting.error());
        attempt.connecting = std::move(*connecting);
        slice = patience().left();
    }
    // Of exports that are no more.
    std::erase_if(unfinished(),
                  [&](const auto& one) { return begun - one.second.asked > abandoned_after; });
    auto progress = Progress::in_progress;
    if (attempt.connecting && attempt.connecting->wait_until(begun + slice)) {
        const auto connected = std::exchange(attempt.connecting, nullptr);
        if (connected->error() != 0) {
            return std::unexpected(failure(uri, connected->error(), connected->text()));
        }
        attempt.link.reset(new NbdLink(connected->take_handle()));
    }
    if (attempt.link) progress = attempt.link->negotiate(begun + slice);
    if (slice > Clock::duration::zero()) patience().spend(Clock::now() - begun);
    switch (progress) {
        case Progress::ready:
            return std::move(attempt.link);
        case Progress::failed:
            return std::unexpected(failure(uri, nbd_get_errno(), last_error()));
        case Progress::in_progress:
            break;
    }
    attempt.asked = Clock::now();
    unfinished().emplace(uri, std::move(attempt));
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
