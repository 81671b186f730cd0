#include "rtrs/base/boot_id.h"

#include <fstream>

namespace rtrs {

std::string boot_id() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string id;
    return file >> id ? id : std::string();
}

}  // namespace rtrs
