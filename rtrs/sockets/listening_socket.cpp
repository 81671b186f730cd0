#include "rtrs/sockets/listening_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "rtrs/base/error.h"

namespace rtrs {

std::expected<Descriptor, std::error_code> listen_on_tcp(const Address& address, int backlog) {
    Descriptor made(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
    if (!made) return std::unexpected(from_errno(errno));
    const int on = 1;
    const int off = 0;
    (void)::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address.family() == AF_INET6) {
        (void)::setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (::bind(made.get(), address.get(), address.bytes) != 0 ||
        ::listen(made.get(), backlog) != 0) {
        return std::unexpected(from_errno(errno));
    }
    return made;
}

}  // namespace rtrs
