// Two clients on one machine must not be the same session to the same server: each would take over
// from the other for ever, or land its old writes after the other's new ones.
//
// A lock per session name and server address, held while it lives. It is the name of an abstract
// Unix socket (unix(7)), so it ends with the process however that ends, needs no directory, and
// network namespaces, which are machines to a server, have their own. A child of fork(2) has none
// of its parent's: the names are free when the parent has given them up, however long it lives.
//
// THREAD: any; one lock is used by one at a time.
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

    // Once more for what it has already does nothing. It waits for a name that is taken only if
    // this process gave it up a moment ago and has not taken it again: a child may have it still,
    // as long as that has not run. After a fork(2) that is at most a second.
    // ERRORS: EADDRINUSE (another client has it), EMFILE, ...
    std::error_code take(const std::string& session, const std::string& destination);
    // From now on another client may take it.
    void release(const std::string& session, const std::string& destination) noexcept;
    void release_all() noexcept;  // allocates nothing

  private:
    struct All;  // of the process

    struct Socket {
        int descriptor = -1;
        // Once it is given up.
        std::chrono::steady_clock::time_point children_have_run{};
    };
    using Sockets = std::map<std::string, Socket>;  // by name

    std::error_code try_to_take(const std::string& name);
    void give_up() noexcept;

    Sockets sockets_;  // guarded by All, for fork(2)
};

}  // namespace rnbd
