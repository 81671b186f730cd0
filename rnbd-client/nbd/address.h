// An address at which NBD clients are served.
#pragma once

#include <cstdint>
#include <string>

namespace rnbd {

enum class NbdTransport : std::uint8_t { unix_socket, tcp };

struct NbdAddress {
    NbdTransport transport = NbdTransport::unix_socket;
    // unix_socket: an absolute path, at most 107 bytes. tcp: "HOST:PORT", numeric, in the form of
    // rtrs/sockets/address.h; port 0: any free port.
    std::string place;

    bool operator==(const NbdAddress&) const noexcept = default;
    // "unix:/run/rnbd/vol1.sock", "tcp:[::1]:10809"
    std::string text() const {
        return (transport == NbdTransport::unix_socket ? "unix:" : "tcp:") + place;
    }
};

}  // namespace rnbd
