#include "rnbd-server/storage/device_queue.h"

#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <cstdlib>
#include <fstream>

namespace rnbd {

std::optional<std::string> queue_attribute(dev_t device, std::string_view name) {
    for (const char* place : {"queue", "../queue"}) {
        std::ifstream file(
            fmt::format("/sys/dev/block/{}:{}/{}/{}", major(device), minor(device), place, name));
        std::string text;
        if (std::getline(file, text)) return text;
    }
    return std::nullopt;
}

std::uint64_t queue_number(dev_t device, std::string_view name) {
    const std::optional<std::string> text = queue_attribute(device, name);
    return text ? std::strtoull(text->c_str(), nullptr, 10) : 0;
}

}  // namespace rnbd
