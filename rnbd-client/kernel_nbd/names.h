// The backend identifier of a volume's kernel device. The kernel keeps it; udev
// (systemd/60-rnbd.rules) names the device by it, and a later rnbd-client recognises the device by
// it.
#pragma once

#include <string>
#include <string_view>

namespace rnbd {

// "rnbd/SESSION/VOLUME", which is also the name of the device below /dev. Characters that udev does
// not accept in a file name are written as \xNN: a slash inside a name, a leading dot, and
// everything except letters, digits and "#+-.:=@_". So is the dash of a trailing "-partN", which
// would be the name of another volume's partition.
std::string backend_identifier(std::string_view session, std::string_view volume);

}  // namespace rnbd
