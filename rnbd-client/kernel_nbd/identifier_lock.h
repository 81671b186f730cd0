// Of the processes on a machine one at a time has a volume's kernel device.
//
// The device is known again by its identifier alone, whoever bound it and to which server. Without
// this a second rnbd-client, of another server's volume of that name or in another network
// namespace, would take the first one's for one that was left behind, and cut or resize it.
//
// It is a lock on a file (flock(2)), so it ends with the process however that ends; not a name of a
// socket as in rnbd/identity/session_lock.h, since the kernel's devices are the same in all network
// namespaces. Containers with a /run of their own do not see each other. The files stay: removing
// one that somebody has open would make it two locks.
#pragma once

#include <expected>
#include <string>

#include "rtrs/base/descriptor.h"

namespace rnbd {

class IdentifierLock {
  public:
    static constexpr const char* machine_folder = "/run/rnbd/nbd-devices";

    // Makes the folder if need be: who may write there can take a lock away, so that must be only
    // its owner, root or the caller.
    // ERRORS: one line for people; also where there can be no such folder.
    static std::expected<IdentifierLock, std::string> take(
        const std::string& identifier, const std::string& folder = machine_folder);

  private:
    explicit IdentifierLock(rtrs::Descriptor file) : file_(std::move(file)) {}
    rtrs::Descriptor file_;
};

}  // namespace rnbd
