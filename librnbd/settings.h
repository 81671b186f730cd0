// The settings and paths that rnbd_session_set() and rnbd_session_add_path() accept.
//
// Plain values, owned by the session. Errors are sentences that name the expected form.
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rtrs/client.h"

namespace rnbd::library {

// One path to the server, as the program gave it.
struct PathSetting {
    enum class Fabric : std::uint8_t { tcp, rdma };
    Fabric fabric = Fabric::tcp;
    std::string source;       // "HOST" or empty
    std::string destination;  // "HOST:PORT", canonical
    rtrs::PathPriority priority = rtrs::PathPriority::prefer;

    // "[standby:][tcp:|rdma:][SOURCE@]HOST:PORT"
    static std::expected<PathSetting, std::string> parse(std::string_view text);
    // The name of the path in events and texts: without priority and "tcp:".
    std::string label() const;
};

enum class Thread : std::uint8_t { none, own };

struct Settings {
    rtrs::ClientSessionOptions session;    // its paths are not used
    bool heartbeat_interval_said = false;  // if not, the interval is derived from the timeout
    bool probe_timeout_said = false;       // the same
    std::vector<PathSetting> paths;
    bool data_checksum = true;
    std::optional<rtrs::Duration> busy_poll;
    bool prompt_sends = true;
    // How long closing waits while the server answers nothing; none: for ever.
    std::optional<rtrs::Duration> close_time = std::chrono::seconds(10);
    Thread thread = Thread::none;

    // The error says which keys there are, or what form the value must have.
    std::expected<void, std::string> set(std::string_view key, std::string_view value);
    // How long the loop polls for answers before it sleeps. A thread of the session that polls
    // keeps a processor from the threads that it has woken, and the scheduler takes it for a busy
    // thread. So with such a thread there is no polling unless the program asks for it.
    rtrs::Duration looks_for() const noexcept {
        constexpr rtrs::Duration without_thread = std::chrono::microseconds(100);
        return busy_poll.value_or(thread == Thread::own ? rtrs::Duration::zero() : without_thread);
    }
    // Checks that everything is set that rnbd_session_start() needs, and that the settings do not
    // contradict each other.
    std::expected<void, std::string> check() const;
};

}  // namespace rnbd::library
