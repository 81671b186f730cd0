#include "daemon/memory_shortage.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

namespace rnbd {

MemoryShortage prepare_for_memory_shortage(LockMemory lock) noexcept {
    MemoryShortage allowed;
    // The kernel wants to see the arguments that are not used, as zeroes.
    allowed.io_flusher = ::prctl(PR_SET_IO_FLUSHER, 1UL, 0UL, 0UL, 0UL) == 0;
    rlimit limit{};
    allowed.locked = lock == LockMemory::yes && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
                     limit.rlim_cur == RLIM_INFINITY &&
                     ::mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0;
    return allowed;
}

}  // namespace rnbd
