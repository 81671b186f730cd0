// What rnbd_session_set() and rnbd_session_add_path() understand.
//
// Plain values, owned by the session; errors are sentences that name the expected form.
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rtrs/client.h"

namespace rnbd::library {

// One way to the server, as the program said it.
struct PathSetting {
    enum class Fabric : std::uint8_t { tcp, rdma };
    Fabric fabric = Fabric::tcp;
    std::string source;       // "HOST" or empty
    std::string destination;  // "HOST:PORT", canonical
    rtrs::PathPriority priority = rtrs::PathPriority::prefer;

    // "[standby:][tcp:|rdma:][SOURCE@]HOST:PORT"
    static std::expected<PathSetting, std::string> parse(std::string_view text);
    // Of events and texts: without priority and "tcp:".
    std::string label() const;
};

enum class Thread : std::uint8_t { none, own };

struct Settings {
    rtrs::ClientSessionOptions session;    // its paths are not used
    bool heartbeat_interval_said = false;  // if not, it goes by the timeout
    std::vector<PathSetting> paths;
    bool data_checksum = true;
    std::optional<rtrs::Duration> busy_poll;
    bool prompt_sends = true;
    // How long a close waits while the server answers nothing; none: for ever.
    std::optional<rtrs::Duration> close_time = std::chrono::seconds(10);
    Thread thread = Thread::none;

    // The error says which keys there are, or what the value has to look like.
    std::expected<void, std::string> set(std::string_view key, std::string_view value);
    // A thread of the session's own that looks keeps a processor from those it has woken, and the
    // scheduler takes that for a busy one: with such a thread only who asks for it has it.
    rtrs::Duration looks_for() const noexcept {
        constexpr rtrs::Duration without_thread = std::chrono::microseconds(100);
        return busy_poll.value_or(thread == Thread::own ? rtrs::Duration::zero() : without_thread);
    }
    // What rnbd_session_start() needs, and how settings fit each other.
    std::expected<void, std::string> check() const;
};

}  // namespace rnbd::library
