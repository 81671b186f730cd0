// Reads the peer's first frame while it comes in: how much to receive, and what it said. Does no
// I/O; used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <system_error>

#include "rtrs/base/bytes.h"
#include "rtrs/fabric/tcp/frame.h"

namespace rtrs::tcp {

class HandshakeReader {
  public:
    // The listening side awaits a connect request; the dialling side awaits an answer, accept or
    // reject.
    enum class Awaited : std::uint8_t { connect_request, answer };
    enum class Progress : std::uint8_t { more, whole };

    explicit HandshakeReader(Awaited awaited) noexcept : awaited_(awaited) {}
    // Where the next bytes go: exactly as many as are known to be missing, since what follows the
    // frame belongs to the endpoint. Not empty before the frame is complete.
    MutableBytes space() noexcept;
    // bytes: how many were received into space(), at least 1. Must not be called after an error.
    // ERRORS: Error::protocol, Error::checksum.
    std::expected<Progress, std::error_code> received(std::size_t bytes) noexcept;
    // After an error: what was wrong, in words. While the frame is incomplete: how much of it has
    // arrived.
    std::string complaint() const;

    bool begun() const noexcept { return received_ > 0; }
    // Once the frame is complete. hello: if its version is another, only the version is set.
    Opcode opcode() const noexcept { return header_.opcode; }
    const Hello& hello() const noexcept { return hello_; }
    Bytes private_data() const noexcept;

  private:
    bool is_awaited(Opcode opcode) const noexcept;
    std::error_code take_header() noexcept;
    std::error_code take_payload() noexcept;
    std::size_t wanted() const noexcept;

    Awaited awaited_;
    std::array<std::byte, HandshakeFrame::bytes_max> bytes_{};
    std::size_t received_ = 0;
    FrameHeader header_;
    Hello hello_;
};

}  // namespace rtrs::tcp
