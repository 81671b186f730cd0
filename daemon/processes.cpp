#include "daemon/processes.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

namespace rnbd {

std::string process_name(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::string name;
    std::getline(file, name);
    return name;
}

std::string process_words(pid_t pid) {
    const std::string name = process_name(pid);
    return name.empty() ? fmt::format("pid {}", pid) : fmt::format("{} (pid {})", name, pid);
}

pid_t socket_listener(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return 0;
    std::memcpy(address.sun_path, path.data(), path.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return 0;
    ucred peer{};
    socklen_t bytes = sizeof peer;
    const bool known =
        ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
    ::close(fd);
    return known ? peer.pid : 0;
}

}  // namespace rnbd
