// Makes sure that only one process on a machine at a time has the kernel device of a volume.
//
// The device is recognised by its identifier alone, whoever bound it and to whichever server.
// Without this lock a second rnbd-client, with a volume of the same name of another server or in
// another network namespace, would mistake the first one's device for one that was left behind, and
// cut or resize it.
//
// It is a lock on a file (flock(2)), so it ends with the process, however the process ends. It is
// not the name of a socket as in rnbd/identity/session_lock.h, because the kernel's devices are the
// same in all network namespaces. Containers with a /run of their own do not see each other's
// locks. The files are never removed: if one were removed that somebody has open, there would be
// two locks.
#pragma once

#include <expected>
#include <string>

#include "rtrs/base/descriptor.h"

namespace rnbd {

class IdentifierLock {
  public:
    static constexpr const char* machine_folder = "/run/rnbd/nbd-devices";

    // Makes the folder if necessary. Whoever may write to the folder can take a lock away, so only
    // its owner may, which must be root or the caller.
    // ERRORS: one line for people; also if the folder cannot exist.
    static std::expected<IdentifierLock, std::string> take(
        const std::string& identifier, const std::string& folder = machine_folder);

  private:
    explicit IdentifierLock(rtrs::Descriptor file) : file_(std::move(file)) {}
    rtrs::Descriptor file_;
};

}  // namespace rnbd
