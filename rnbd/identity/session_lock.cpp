#include "rnbd/identity/session_lock.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "rtrs/base/error.h"
#include "rtrs/base/fnv1a.h"

namespace rnbd {
namespace {

// Names are longer than a socket's name may be.
std::string socket_name(const std::string& session, const std::string& destination) {
    return "rnbd-client session " + std::to_string(rtrs::fnv1a(session + "\n" + destination));
}

using Clock = std::chrono::steady_clock;

// When its child has run, and given up what is not its own, nobody tells the process that forked.
constexpr Clock::duration child_runs_within = std::chrono::seconds(1);
constexpr Clock::duration look_again_after = std::chrono::milliseconds(1);

}  // namespace

// A forked child closes its copies, which would hold the names as long as it lives. No socket is
// made or closed while the process forks.
struct SessionLock::All {
    std::mutex mutex;
    std::set<SessionLock*> locks;
    Clock::time_point children_have_run{};

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
        for (SessionLock* lock : here().locks) lock->give_up();
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
    for (const auto& [name, socket] : sockets_) ::close(socket);
    sockets_.clear();
}

std::error_code SessionLock::take(const std::string& session, const std::string& destination) {
    const std::string name = socket_name(session, destination);
    for (;;) {
        Clock::time_point children_have_run;
        {
            const std::scoped_lock held(All::here().mutex);
            const std::error_code error = try_to_take(name);
            if (error != std::errc::address_in_use) return error;
            children_have_run = All::here().children_have_run;
        }
        if (Clock::now() >= children_have_run) return rtrs::from_errno(EADDRINUSE);
        std::this_thread::sleep_for(look_again_after);
    }
}

void SessionLock::release(const std::string& session, const std::string& destination) noexcept {
    const std::scoped_lock held(All::here().mutex);
    const auto found = sockets_.find(socket_name(session, destination));
    if (found == sockets_.end()) return;
    ::close(found->second);
    sockets_.erase(found);
}

void SessionLock::release_all() noexcept {
    const std::scoped_lock held(All::here().mutex);
    give_up();
}

std::error_code SessionLock::try_to_take(const std::string& name) {
    if (sockets_.contains(name)) return {};
    // Before the name is taken: what throws afterwards would keep it.
    decltype(sockets_) one;
    one.emplace(name, -1);
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
    one.begin()->second = socket;
    sockets_.merge(one);
    return {};
}

}  // namespace rnbd
