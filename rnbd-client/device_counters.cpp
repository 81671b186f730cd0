#include "rnbd-client/device_counters.h"

#include <algorithm>

namespace rnbd {
namespace {

std::size_t kind_of(nbd::Command command) noexcept {
    return std::min<std::size_t>(static_cast<std::size_t>(command), DeviceCounters::kinds - 1);
}

}  // namespace

void DeviceCounters::count(const nbd::Request& request, nbd::NbdError error,
                           rtrs::Duration took) noexcept {
    Kind& kind = by_command[kind_of(request.command)];
    ++kind.requests;
    kind.durations.add(took);
    if (error == nbd::NbdError::none) {
        kind.bytes += request.length;
    } else {
        ++kind.errors;
    }
}

const DeviceCounters::Kind& DeviceCounters::of(nbd::Command command) const noexcept {
    return by_command[kind_of(command)];
}

}  // namespace rnbd
