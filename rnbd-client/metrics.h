// The metrics that the client gives monitoring systems (docs/reference/metrics.md).
//
// OWNER: the caller owns text and state; nothing is kept.
// THREAD: the reactor's (rtrs/reactor.h).
// ERRORS: none.
#pragma once

#include "daemon/metrics/text.h"
#include "rnbd-client/status.h"

namespace rnbd {

// Appends all metrics of the client, with their present values, to text.
void add_client_metrics(MetricsText& text, const ClientState& state);

}  // namespace rnbd
