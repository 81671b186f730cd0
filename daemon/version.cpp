#include "daemon/version.h"

namespace rnbd {

const char* version() noexcept { return RNBD_VERSION; }

}  // namespace rnbd
