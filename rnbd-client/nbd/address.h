// Where NBD clients come to.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace rnbd {

enum class NbdTransport : std::uint8_t { unix_socket, tcp };

struct NbdAddress {
    NbdTransport transport = NbdTransport::unix_socket;
    std::string path;  // unix
    std::string host;  // tcp: a name or a numeric address, without brackets
    std::string port;  // tcp

    // "unix:PATH", "tcp:HOST:PORT" or "tcp:[IPV6]:PORT".
    // ERRORS: what is wrong and what was expected, in one line.
    static std::expected<NbdAddress, std::string> parse(std::string_view text);
    std::string text() const;
};

}  // namespace rnbd
