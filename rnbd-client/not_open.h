// Says why a session or a volume cannot be used now, including what the session's paths know.
//
// OWNER: none. THREAD: the session's.
#pragma once

#include <string>

#include "rnbd/remote_volume.h"
#include "rtrs/client.h"

namespace rnbd {

// RemoteVolume::reason(), and if the session has no path, the present reason for that. Empty while
// the volume is open and there is nothing to say.
std::string why_not_open(RemoteVolume& volume);
// For a session whose link is not up: the reasons of its paths, with the names of the paths if the
// reasons differ; the session's own reason if the paths have none, or were all given up. If it is
// so, the text adds that no path comes back by itself, and that requests fail at once.
std::string why_not_connected(const rtrs::ClientSessionStatus& session);

}  // namespace rnbd
