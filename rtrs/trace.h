// One line per decision: what the daemons log and what transcripts compare.
//
// THREAD: that of whoever traces: the reactor's (reactor.h), or the simulator's. Never two at a
// time, and never on the way of a request.
#pragma once

#include <cstdint>
#include <string_view>

namespace rtrs {

enum class TraceLevel : std::uint8_t { debug, info, warning, error };

class Tracer {
  public:
    virtual ~Tracer() = default;
    // subsystem: "rtrs.path", "rtrs.session", ...; subject: the printable name of the thing
    // ("host-a", "host-a/10.0.0.1:1235"); text: one line, no newline. Views live for the call.
    virtual void trace(TraceLevel level, std::string_view subsystem, std::string_view subject,
                       std::string_view text) = 0;
};

}  // namespace rtrs
