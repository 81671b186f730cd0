// The terms that both halves of RTRS share, rtrs/client.h and rtrs/server.h.
#pragma once

#include <cstdint>

#include "rtrs/base/clock.h"
#include "rtrs/base/random.h"
#include "rtrs/trace.h"

namespace rtrs {

// Where a session gets time and chance, and whom it tells what happens. All outlive it.
struct SessionEnvironment {
    Clock& clock;
    Random& random;
    Tracer& tracer;
};

// Index of a permit, of its chunk at the server and of its request: 0 .. queue_depth - 1.
enum class PermitId : std::uint32_t {};

// Of a request's payload, as the client sees it.
enum class Direction : std::uint8_t { read, write };

// How a late attempt of a request is kept from landing after newer data.
enum class Protection : std::uint8_t {
    // The peer has no sequence numbers (a kernel). Requests of a lost path wait until the peer has
    // finished with that path. The peer says so over another path, or by accepting the lost one
    // again.
    fenced,
    // Every attempt carries a sequence number, so that the server runs each request once, whichever
    // path brings it.
    exactly_once
};
constexpr const char* to_string(Protection protection) noexcept {
    return protection == Protection::exactly_once ? "exactly-once" : "fenced";
}

}  // namespace rtrs
