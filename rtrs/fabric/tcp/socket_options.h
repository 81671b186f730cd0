// Sockets as both sides of a connection want them, and what the system knows of one whose packets
// vanish.
#pragma once

#include <expected>
#include <system_error>

#include "rtrs/base/instant.h"

namespace rtrs::tcp {

// A stream socket as both sides want it; with the ring it must block. ERRORS: EMFILE, ...
std::expected<int, std::error_code> open_socket(int family) noexcept;
// The same for a socket that was accepted.
void prepare_socket(int fd) noexcept;
// EndpointOptions::silence_max.
void limit_silence(int fd, Duration silence_max) noexcept;
// Endpoint::ask_network(); limit_silence() ends it.
void try_silence_soon(int fd) noexcept;
// Endpoint::unacknowledged().
Duration unacknowledged_by(int fd) noexcept;
// Endpoint::quiet(), of what the socket was given.
Duration quietness_of(int fd) noexcept;
// EndpointOptions::Packets::small. Before it is connected: the peer is told, and keeps to it.
void limit_packets(int fd) noexcept;

}  // namespace rtrs::tcp
