// An opening that takes more than one call.
//
// THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <memory>

namespace rnbd {

class FileOpening;
// What open_storage() has begun and not waited for, from one call to the next. Its end abandons
// that.
struct StorageOpening {
    std::shared_ptr<FileOpening> file{};
    bool failed = false;  // the last one
};

}  // namespace rnbd
