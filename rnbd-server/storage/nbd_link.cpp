#include "rnbd-server/storage/nbd_link.h"

#include <libnbd.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <unordered_set>
#include <utility>

#include "rnbd-server/storage/wait_budget.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/detached_call.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

using Clock = std::chrono::steady_clock;

// What the beginning of a connection may cost the other exports; all of them together cost no more
// than a tenth of the time.
constexpr Clock::duration open_slice = std::chrono::milliseconds(20);
constexpr int open_share = 10;
// Who wants a connection asks again sooner.
constexpr Clock::duration abandoned_after = std::chrono::seconds(10);
// Between looks whether a connection that is being made is still wanted.
constexpr std::chrono::milliseconds wanted_poll{1000};
// So long answers are taken in one turn: a server that sends without end holds up nobody else.
constexpr Clock::duration receive_slice = std::chrono::milliseconds(2);

std::string last_error() {
    const char* text = nbd_get_error();
    std::string line = text != nullptr ? text : "it failed";
    for (char& c : line) c = c == '\n' ? ' ' : c;
    return line;
}

StorageError failure(const std::string& uri, int error, const std::string& text) {
    return {rtrs::from_errno(error != 0 ? error : EIO), uri + ": " + text};
}

struct CloseHandle {
    void operator()(nbd_handle* handle) const noexcept { nbd_close(handle); }
};

// The connection, or what is wrong.
struct Dialled {
    std::unique_ptr<nbd_handle, CloseHandle> handle{};
    int error = 0;
    std::string text{};
};

// Held by who wants a connection.
using Wish = std::shared_ptr<const int>;

// False: nothing happened for a while.
bool wait_for(nbd_handle* handle) {
    const unsigned direction = nbd_aio_get_direction(handle);
    pollfd ready{.fd = nbd_aio_get_fd(handle), .events = 0, .revents = 0};
    if ((direction & LIBNBD_AIO_DIRECTION_READ) != 0) ready.events |= POLLIN;
    if ((direction & LIBNBD_AIO_DIRECTION_WRITE) != 0) ready.events |= POLLOUT;
    return ::poll(&ready, 1, static_cast<int>(wanted_poll.count())) > 0;
}

bool negotiate(nbd_handle* handle, const std::weak_ptr<const int>& wish) {
    while (!wish.expired()) {
        if (nbd_aio_is_ready(handle) == 1) return true;
        if (nbd_aio_is_dead(handle) == 1 || nbd_aio_is_closed(handle) == 1) return false;
        const unsigned direction = nbd_aio_get_direction(handle);
        if (!wait_for(handle)) continue;
        const int stepped = (direction & LIBNBD_AIO_DIRECTION_WRITE) != 0
                                ? nbd_aio_notify_write(handle)
                                : nbd_aio_notify_read(handle);
        if (stepped != 0) return false;
    }
    return false;
}

// On a thread of its own: libnbd looks the server's name up in it, and waits for a name server that
// does not answer; and it takes what a server says in the handshake for as long as that sends.
// room: for the connection's descriptor, until that is there.
Dialled dial(const std::string& uri, std::shared_ptr<DescriptorRoom> room,
             const std::weak_ptr<const int>& wish) {
    Dialled made{.handle = std::unique_ptr<nbd_handle, CloseHandle>(nbd_create())};
    if (made.handle == nullptr) {
        made.error = ENOMEM;
    } else {
        bool good = nbd_aio_connect_uri(made.handle.get(), uri.c_str()) == 0;
        room.reset();
        good = good && negotiate(made.handle.get(), wish);
        if (!good) made.error = nbd_get_errno() != 0 ? nbd_get_errno() : EIO;
    }
    if (made.error != 0) made.text = last_error();
    return made;
}

using Dialling = rtrs::DetachedCall<Dialled>;

struct Attempt {
    Dialling dialling;
    Wish wish;
    Clock::time_point asked{};
};

std::expected<Attempt, StorageError> begin(const std::string& uri, DescriptorRoom::For whom) {
    auto room = DescriptorRoom::take(1, whom);
    if (!room) return std::unexpected(failure(uri, EMFILE, std::string(DescriptorRoom::none_left)));
    Wish wish = std::make_shared<const int>();
    auto dialling = Dialling::start(
        [uri, held = std::make_shared<DescriptorRoom>(std::move(*room)),
         its_wish = std::weak_ptr(wish)]() mutable { return dial(uri, std::move(held), its_wish); },
        "rnbd-nbd-dial");
    if (!dialling) {
        const std::error_code error = dialling.error();
        return std::unexpected(failure(uri, error.value(), error.message()));
    }
    return Attempt{.dialling = std::move(*dialling), .wish = std::move(wish)};
}

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

WaitBudget& wait_budget() {
    thread_local WaitBudget budget(open_slice, open_share);
    return budget;
}

}  // namespace

NbdLink::~NbdLink() {
    RTRS_ASSERT(!readable_.in_flight && !writable_.in_flight);
    attached().erase(this);
    nbd_close(handle_);
}

std::expected<std::unique_ptr<NbdLink>, StorageError> NbdLink::open(const std::string& uri,
                                                                    DescriptorRoom::For whom) {
    const Clock::time_point now = Clock::now();
    // Of exports that are no more.
    std::erase_if(unfinished(),
                  [&](const auto& one) { return now - one.second.asked > abandoned_after; });
    auto at = unfinished().find(uri);
    if (at == unfinished().end()) {
        auto attempt = begin(uri, whom);
        if (!attempt) return std::unexpected(std::move(attempt.error()));
        at = unfinished().emplace(uri, std::move(*attempt)).first;
        // Later calls do not wait: a server that is silent so long may be so for ever.
        at->second.dialling.wait_for(wait_budget().left());
        wait_budget().spend(Clock::now() - now);
    }
    at->second.asked = now;
    if (!at->second.dialling.is_over())
        return std::unexpected(failure(uri, EINPROGRESS, "still connecting to the NBD server"));
    Dialled dialled = std::move(at->second.dialling.result());
    unfinished().erase(at);
    if (dialled.error != 0) return std::unexpected(failure(uri, dialled.error, dialled.text));
    return std::unique_ptr<NbdLink>(new NbdLink(dialled.handle.release()));
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
    const Clock::time_point until = Clock::now() + receive_slice;
    while (alive() && (nbd_aio_get_direction(handle_) & LIBNBD_AIO_DIRECTION_READ) != 0 &&
           ready(POLLIN) && nbd_aio_notify_read(handle_) == 0 && Clock::now() < until) {
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
