// Why a volume cannot be used now, with what its session's paths know of it.
#pragma once

#include <string>

#include "rnbd/remote_volume.h"
#include "rtrs/client.h"

namespace rnbd {

// RemoteVolume::reason(), and where its session has no path, why not, as it is now. Empty while it
// is open and nothing is to be said.
std::string why_not_open(RemoteVolume& volume);
// Of a session without a path that is up: the reason of its paths, with their names if they differ;
// its own if they have none, or nothing is dialled any more.
std::string why_no_path(const rtrs::ClientSessionStatus& session, std::error_code refuses_new);

}  // namespace rnbd
