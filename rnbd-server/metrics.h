// The metrics that the server gives monitoring systems (docs/reference/metrics.md).
//
// OWNER: the caller owns text and state; nothing is kept.
// THREAD: the reactor's (rtrs/reactor.h).
// ERRORS: none.
#pragma once

#include "daemon/metrics/text.h"
#include "rnbd-server/status.h"

namespace rnbd {

// Appends all metrics of the server, with their present values, to text.
void add_server_metrics(MetricsText& text, const ServerState& state);

}  // namespace rnbd
