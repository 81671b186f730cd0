// An opening that takes more than one call.
//
// THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <memory>

#include "rnbd-server/storage/descriptor_room.h"

namespace rnbd {

class FileOpening;
// An opening that open_storage() has begun and not finished, kept from one call to the next.
// Destroying it abandons the opening.
struct StorageOpening {
    std::shared_ptr<FileOpening> file{};
    bool failed = false;  // the last opening has failed
    DescriptorRoom::For whom = DescriptorRoom::For::newcomer;
};

}  // namespace rnbd
