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
        return;
    }
    ++kind.errors;
    switch (error) {
        case nbd::NbdError::none:
            break;
        case nbd::NbdError::perm:
            ++errors_perm;
            break;
        case nbd::NbdError::io:
            ++errors_io;
            break;
        case nbd::NbdError::nomem:
            ++errors_nomem;
            break;
        case nbd::NbdError::inval:
            ++errors_inval;
            break;
        case nbd::NbdError::nospc:
            ++errors_nospc;
            break;
        case nbd::NbdError::overflow:
            ++errors_overflow;
            break;
        case nbd::NbdError::notsup:
            ++errors_notsup;
            break;
        case nbd::NbdError::shutdown:
            ++errors_shutdown;
            break;
    }
}

const DeviceCounters::Kind& DeviceCounters::of(nbd::Command command) const noexcept {
    return by_command[kind_of(command)];
}

}  // namespace rnbd
