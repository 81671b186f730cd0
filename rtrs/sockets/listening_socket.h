// A listening TCP socket.
#pragma once

#include <expected>
#include <system_error>

#include "rtrs/base/descriptor.h"
#include "rtrs/sockets/address.h"

namespace rtrs {

// The socket is in blocking mode, as the ring needs it. The IPv6 wildcard address accepts IPv4 as
// well, whatever the system's default is. backlog: as for listen(2). ERRORS: EADDRINUSE, EACCES,
// EADDRNOTAVAIL, EMFILE.
std::expected<Descriptor, std::error_code> listen_on_tcp(const Address& address, int backlog);

}  // namespace rtrs
