// Keeps two clients on one machine from being the same session to the same server. Otherwise each
// would take over the session from the other for ever, or its old writes would arrive after the
// other's new ones.
//
// There is one lock per session name and server address, held until it is released or the
// SessionLock is destroyed. It is the name of an abstract Unix socket (unix(7)): it ends with the
// process, however the process ends, and it needs no directory. Each network namespace has its own
// names; to a server a namespace is a machine. A child of fork(2) has no lock of its parent: once
// the parent gives up a name, the name is free, however long the child lives.
//
// THREAD: any; one SessionLock is used by one thread at a time.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <system_error>

namespace rnbd {

class SessionLock {
  public:
    SessionLock();
    ~SessionLock();
    SessionLock(const SessionLock&) = delete;
    SessionLock& operator=(const SessionLock&) = delete;

    // Taking a name that this lock already holds does nothing. If the name is in use, take() waits
    // only if this process gave it up a moment ago and has not taken it again: a forked child may
    // still have the socket until the child has run. After a fork(2) the wait is at most a second.
    // ERRORS: EADDRINUSE (another client has it), EMFILE, ...
    std::error_code take(const std::string& session, const std::string& destination);
    // From now on another client may take the name.
    void release(const std::string& session, const std::string& destination) noexcept;
    void release_all() noexcept;  // allocates nothing

  private:
    struct All;  // all locks of the process

    struct Socket {
        int descriptor = -1;
        // Set once the name is given up.
        std::chrono::steady_clock::time_point children_have_run{};
    };
    using Sockets = std::map<std::string, Socket>;  // by name

    std::error_code try_to_take(const std::string& name);
    void give_up() noexcept;

    Sockets sockets_;  // guarded by the mutex of All, because of fork(2)
};

}  // namespace rnbd
