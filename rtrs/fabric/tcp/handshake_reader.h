// The peer's first frame, while it comes in: how much to receive, what it said. Does no I/O; one
// thread at a time.
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
    // A connect request comes to who listens, an answer, accept or reject, to who dials.
    enum class Awaited : std::uint8_t { connect_request, answer };
    enum class Progress : std::uint8_t { more, whole };

    explicit HandshakeReader(Awaited awaited) noexcept : awaited_(awaited) {}
    // Where the next bytes belong: exactly as many as are known to be missing, since what follows
    // the frame belongs to the endpoint. Not empty before all is there.
    MutableBytes space() noexcept;
    // bytes: received into space(), 1 to all of it. Nothing may follow an error.
    // ERRORS: Error::protocol, Error::checksum.
    std::expected<Progress, std::error_code> received(std::size_t bytes) noexcept;
    // After an error: what was wrong, in words. Before all is there: how much is.
    std::string complaint() const;

    bool begun() const noexcept { return received_ > 0; }
    // Once all is there. hello: of another version, only that is in it.
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
