// What lets a daemon go on while its machine is short of memory, though the kernel may be able to
// free some only by writing to devices that hang on that very daemon.
#pragma once

namespace rnbd {

// What this process was allowed.
struct MemoryShortage {
    // When the kernel needs memory for what this process calls, it does not wait for I/O or file
    // systems to get it, which may wait for this process.
    bool io_flusher = false;
    // What this process has touched is not swapped out.
    bool locked = false;
};

enum class LockMemory : bool { no, yes };

// Holds for threads that are started later, io_uring's too.
//
// io_flusher: PR_SET_IO_FLUSHER of prctl(2). It needs CAP_SYS_RESOURCE outside of user namespaces.
// locked: mlockall(2) with MCL_ONFAULT, which leaves alone what was reserved and never used. It
// needs RLIMIT_MEMLOCK to be unlimited (prepare_process() raises it): under a limit the kernel
// would refuse memory later.
//
// ASSUMES: no thread was started yet.
MemoryShortage prepare_for_memory_shortage(LockMemory lock) noexcept;

}  // namespace rnbd
