// Why a session or a volume cannot be used now, with what the session's paths know of it.
#pragma once

#include <string>

#include "rnbd/remote_volume.h"
#include "rtrs/client.h"

namespace rnbd {

// RemoteVolume::reason(), and where its session has no path, why not, as it is now. Empty while it
// is open and nothing is to be said.
std::string why_not_open(RemoteVolume& volume);
// Of a session whose link is not up: the reason of its paths, with their names if they differ; its
// own if they have none, or were all given up. Then, if so, that none comes back by itself, and
// that requests fail at once.
std::string why_not_connected(const rtrs::ClientSessionStatus& session);

}  // namespace rnbd
