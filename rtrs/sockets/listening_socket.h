// A TCP socket that listens.
#pragma once

#include <expected>
#include <system_error>

#include "rtrs/base/descriptor.h"
#include "rtrs/sockets/address.h"

namespace rtrs {

// It blocks, as the ring wants it. An IPv6 address of all takes in IPv4 as well, whatever the
// system's default is. backlog: as of listen(2). ERRORS: EADDRINUSE, EACCES, EADDRNOTAVAIL, EMFILE.
std::expected<Descriptor, std::error_code> listen_on_tcp(const Address& address, int backlog);

}  // namespace rtrs
