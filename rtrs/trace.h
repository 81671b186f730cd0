// One line per decision: what the daemons log and what transcripts compare.
//
// THREAD: that of the caller: the reactor's (reactor.h), or the simulator's. Never called by two at
// a time, and never in the course of a request.
#pragma once

#include <cstdint>
#include <string_view>

namespace rtrs {

enum class TraceLevel : std::uint8_t { debug, info, warning, error };

class Tracer {
  public:
    virtual ~Tracer() = default;
    // subsystem: "rtrs.path", "rtrs.session", ...; subject: the printable name of the thing
    // ("host-a", "host-a/10.0.0.1:1235"); text: one line, no newline. The views are valid during
    // the call.
    virtual void trace(TraceLevel level, std::string_view subsystem, std::string_view subject,
                       std::string_view text) = 0;
};

}  // namespace rtrs
