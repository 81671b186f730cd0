#include "daemon/sockets/processes.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "rtrs/base/descriptor.h"

namespace rnbd {

pid_t socket_listener(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return 0;
    std::memcpy(address.sun_path, path.data(), path.size());
    const rtrs::Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe) return 0;
    ucred peer{};
    socklen_t bytes = sizeof peer;
    const bool known =
        ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
    return known ? peer.pid : 0;
}

}  // namespace rnbd
