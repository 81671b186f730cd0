#include "daemon/config/machine_name.h"

#include <unistd.h>

namespace rnbd {

std::string machine_name() {
    char name[256]{};
    if (::gethostname(name, sizeof name - 1) != 0) return "";
    std::string text(name);
    return text.substr(0, text.find('.'));
}

}  // namespace rnbd
