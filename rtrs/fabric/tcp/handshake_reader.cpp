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

std::error_code HandshakeReader::take_header() noexcept {
    const auto header = parse_header(std::span(bytes_).first<header_bytes>());
    if (!header) return header.error();
    const bool is_request = header->opcode == Opcode::connect_request;
    const bool is_answer = header->opcode == Opcode::accept || header->opcode == Opcode::reject;
    if (awaited_ == Awaited::connect_request ? !is_request : !is_answer) return Error::protocol;
    header_ = *header;
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

}  // namespace rtrs::tcp
