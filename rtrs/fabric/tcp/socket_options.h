// The options of sockets on both sides of a connection, and what the system knows of a connection
// whose packets vanish.
#pragma once

#include <expected>
#include <optional>
#include <system_error>

#include "rtrs/base/instant.h"

namespace rtrs::tcp {

// A stream socket with the options for both sides; it is blocking, as the ring needs it. ERRORS:
// EMFILE, ...
std::expected<int, std::error_code> open_socket(int family) noexcept;
// Sets the same options on an accepted socket.
void prepare_socket(int fd) noexcept;
// Applies EndpointOptions::silence_max.
void limit_silence(int fd, Duration silence_max) noexcept;
// For Endpoint::ask_network(); limit_silence() undoes it.
void try_silence_soon(int fd) noexcept;
// For Endpoint::unacknowledged().
Duration unacknowledged_by(int fd) noexcept;
// For Endpoint::quiet(), regarding what the socket was given.
Duration quietness_of(int fd) noexcept;
// The processor that has brought what came last: the network card's, or the one that a peer on this
// machine ran on. None: not known.
std::optional<unsigned> processor_of_arrival(int fd) noexcept;
// For EndpointOptions::Packets::small. To be called before the socket is connected: the peer is
// told, and keeps to it.
void limit_packets(int fd) noexcept;

}  // namespace rtrs::tcp
