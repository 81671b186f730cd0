// What a volume's kernel device is called: the backend identifier that the kernel keeps for it,
// by which udev (systemd/60-rnbd.rules) names it and by which a later rnbd-client knows it again.
#pragma once

#include <string>
#include <string_view>

namespace rnbd {

// "rnbd/SESSION/VOLUME", which is also its name below /dev. What udev does not take as part of one
// file's name is written as \xNN: a slash inside, a leading dot, anything but letters, digits and
// "#+-.:=@_".
std::string backend_identifier(std::string_view session, std::string_view volume);

}  // namespace rnbd
