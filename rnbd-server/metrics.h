// What the server tells monitoring systems: docs/reference/metrics.md.
#pragma once

#include "daemon/metrics/text.h"
#include "rnbd-server/status.h"

namespace rnbd {

void add_server_metrics(MetricsText& text, const ServerState& state);

}  // namespace rnbd
