// Listening at an address where a process listened that was just killed. The kernel ends the
// process's io_uring operations only after the process is gone, and keeps their sockets for some
// milliseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <system_error>
#include <thread>

#include "rtrs/base/instant.h"

namespace rnbd {

// What to do about an address that is in use.
enum class InUse : std::uint8_t { fails, waits };

// How long a daemon that starts waits for each of its addresses.
inline constexpr rtrs::Duration in_use_timeout = std::chrono::seconds(2);

// Tries to listen repeatedly while the address is in use, at most for `timeout`. It blocks, so it
// is for the start of a daemon, which has nothing else to do yet. listen: returns a std::expected;
// error_of: returns the std::error_code in its error.
template <typename Listen, typename ErrorOf = std::identity>
auto while_in_use(rtrs::Duration timeout, Listen listen, ErrorOf error_of = {}) {
    constexpr std::chrono::milliseconds interval{20};
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (;;) {
        auto result = listen();
        const bool in_use =
            !result && std::invoke(error_of, result.error()) == std::errc::address_in_use;
        if (!in_use || std::chrono::steady_clock::now() >= end) return result;
        std::this_thread::sleep_for(interval);
    }
}

}  // namespace rnbd
