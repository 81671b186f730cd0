#include "rnbd/identity/session_lock.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "rtrs/base/error.h"
#include "rtrs/base/fnv1a.h"

namespace rnbd {
namespace {

// The names are hashed, because they are longer than the name of a socket may be.
std::string socket_name(const std::string& session, const std::string& destination) {
    return "rnbd-client session " + std::to_string(rtrs::fnv1a(session + "\n" + destination));
}

using Clock = std::chrono::steady_clock;

// Nobody tells a process that has forked when its child has run and closed its copies. It is
// assumed to have done so within this time.
constexpr Clock::duration child_runs_within = std::chrono::seconds(1);
// Nobody tells of a child of vfork(2), posix_spawn(3) or clone(2) either. Such a child soon
// executes another program, which has none of the sockets.
constexpr Clock::duration other_program_within = std::chrono::milliseconds(100);
constexpr Clock::duration look_again_after = std::chrono::milliseconds(1);

}  // namespace

// All locks of the process. A forked child closes its copies of the sockets, which would hold the
// names as long as the child lives. No socket is made or closed while the process forks.
struct SessionLock::All {
    std::mutex mutex;
    std::set<SessionLock*> locks;
    // Names that a child may still have.
    Sockets given_up;
    Clock::time_point children_have_run{};

    // Allocates nothing.
    void give_up(Sockets& from, Sockets::iterator which) noexcept {
        const Clock::time_point now = Clock::now();
        std::erase_if(given_up,
                      [now](const auto& one) { return now >= one.second.children_have_run; });
        ::close(which->second.descriptor);
        auto node = from.extract(which);
        node.mapped() = {
            .descriptor = -1,
            .children_have_run = std::max(children_have_run, now + other_program_within)};
        const auto put = given_up.insert(std::move(node));
        if (!put.inserted) put.position->second = put.node.mapped();
    }
    // If a lock of this process holds the name again, it keeps it, and there is nothing to wait
    // for.
    bool may_be_a_childs(const std::string& name) const {
        const auto found = given_up.find(name);
        if (found == given_up.end()) return false;
        if (Clock::now() >= found->second.children_have_run) return false;
        return std::ranges::none_of(
            locks, [&](const SessionLock* lock) { return lock->sockets_.contains(name); });
    }

    // Never destroyed: locks may be given up while the process ends.
    static All& here() {
        static All& all = *new All;
        static const int watches_forks = ::pthread_atfork(before_fork, after_fork, in_child);
        (void)watches_forks;
        return all;
    }

  private:
    static void before_fork() { here().mutex.lock(); }
    static void after_fork() {
        here().children_have_run = Clock::now() + child_runs_within;
        here().mutex.unlock();
    }
    static void in_child() {
        for (SessionLock* lock : here().locks) {
            for (const auto& [name, socket] : lock->sockets_) ::close(socket.descriptor);
            lock->sockets_.clear();
        }
        here().mutex.unlock();
    }
};

SessionLock::SessionLock() {
    All& all = All::here();
    const std::scoped_lock held(all.mutex);
    all.locks.insert(this);
}

SessionLock::~SessionLock() {
    All& all = All::here();
    const std::scoped_lock held(all.mutex);
    all.locks.erase(this);
    give_up();
}

void SessionLock::give_up() noexcept {
    while (!sockets_.empty()) All::here().give_up(sockets_, sockets_.begin());
}

std::error_code SessionLock::take(const std::string& session, const std::string& destination) {
    const std::string name = socket_name(session, destination);
    for (;;) {
        {
            const std::scoped_lock held(All::here().mutex);
            const std::error_code error = try_to_take(name);
            if (error != std::errc::address_in_use) return error;
            if (!All::here().may_be_a_childs(name)) return error;
        }
        std::this_thread::sleep_for(look_again_after);
    }
}

void SessionLock::release(const std::string& session, const std::string& destination) noexcept {
    const std::scoped_lock held(All::here().mutex);
    const auto found = sockets_.find(socket_name(session, destination));
    if (found == sockets_.end()) return;
    All::here().give_up(sockets_, found);
}

void SessionLock::release_all() noexcept {
    const std::scoped_lock held(All::here().mutex);
    give_up();
}

std::error_code SessionLock::try_to_take(const std::string& name) {
    if (sockets_.contains(name)) return {};
    // Allocated before the name is taken: an exception afterwards would leave the name taken.
    Sockets one;
    one.emplace(name, Socket{});
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return rtrs::from_errno(errno);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(),
                std::min(name.size(), sizeof address.sun_path - 1));
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
        const int error = errno;
        ::close(socket);
        return rtrs::from_errno(error);
    }
    one.begin()->second.descriptor = socket;
    sockets_.merge(one);
    return {};
}

}  // namespace rnbd
