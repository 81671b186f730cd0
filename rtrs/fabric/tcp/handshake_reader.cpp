#include "rtrs/fabric/tcp/handshake_reader.h"

#include <span>

#include "rtrs/base/assert.h"
#include "rtrs/fabric/tcp/crc32c.h"

namespace rtrs::tcp {

// The header is what says how long its payload is: at most what a handshake frame has room for.
std::size_t HandshakeReader::wanted() const noexcept {
    return received_ < header_bytes ? header_bytes : header_bytes + header_.payload_bytes;
}

MutableBytes HandshakeReader::space() noexcept {
    return MutableBytes(bytes_).first(wanted()).subspan(received_);
}

Bytes HandshakeReader::private_data() const noexcept {
    return Bytes(bytes_).subspan(header_bytes + hello_bytes, hello_.private_bytes);
}

std::expected<HandshakeReader::Progress, std::error_code> HandshakeReader::received(
    std::size_t bytes) noexcept {
    const bool of_header = received_ < header_bytes;
    RTRS_ASSERT(bytes <= wanted() - received_);
    received_ += bytes;
    if (received_ < header_bytes) return Progress::more;
    if (of_header) {
        if (const std::error_code error = take_header()) return std::unexpected(error);
    }
    if (received_ < wanted()) return Progress::more;
    if (const std::error_code error = take_payload()) return std::unexpected(error);
    return Progress::whole;
}

bool HandshakeReader::is_awaited(Opcode opcode) const noexcept {
    if (awaited_ == Awaited::connect_request) return opcode == Opcode::connect_request;
    return opcode == Opcode::accept || opcode == Opcode::reject;
}

std::error_code HandshakeReader::take_header() noexcept {
    FrameHeader header;
    if (const auto error = parse_header(std::span(bytes_).first<header_bytes>(), header))
        return *error;
    if (!is_awaited(header.opcode)) return Error::protocol;
    header_ = header;
    return {};
}

std::error_code HandshakeReader::take_payload() noexcept {
    const Bytes payload = Bytes(bytes_).subspan(header_bytes, header_.payload_bytes);
    if (!header_.has_payload_crc() || crc32c(payload) != header_.payload_crc)
        return Error::checksum;
    const auto hello = parse_hello(payload);
    if (!hello) return hello.error();
    hello_ = *hello;
    return {};
}

std::string HandshakeReader::complaint() const {
    const bool awaits_request = awaited_ == Awaited::connect_request;
    const std::string what =
        awaits_request ? "a connect request" : "the answer to a connect request";
    const auto header = std::span(bytes_).first<header_bytes>();
    if (received_ < header_bytes)
        return std::to_string(received_) + " bytes came of " + what + ", expected " +
               std::to_string(header_bytes) + " and more";
    FrameHeader parsed;
    if (parse_header(header, parsed)) return wrong_with_header(header);
    if (!is_awaited(parsed.opcode))
        return "opcode of the first frame: found " + text_of(parsed.opcode) + ", expected " +
               (awaits_request ? text_of(Opcode::connect_request)
                               : text_of(Opcode::accept) + " or " + text_of(Opcode::reject));
    if (received_ < wanted())
        return std::to_string(received_) + " bytes came of " + what + ", expected " +
               std::to_string(wanted());
    const Bytes payload = Bytes(bytes_).subspan(header_bytes, header_.payload_bytes);
    if (!header_.has_payload_crc() || crc32c(payload) != header_.payload_crc)
        return "payload checksum of " + what + ": found " +
               (header_.has_payload_crc() ? std::to_string(header_.payload_crc) : "none") +
               ", expected " + std::to_string(crc32c(payload));
    return wrong_with_hello(payload);
}

}  // namespace rtrs::tcp
