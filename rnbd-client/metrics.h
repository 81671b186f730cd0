// What the client tells monitoring systems: docs/reference/metrics.md.
#pragma once

#include "daemon/metrics/text.h"
#include "rnbd-client/status.h"

namespace rnbd {

void add_client_metrics(MetricsText& text, const ClientState& state);

}  // namespace rnbd
