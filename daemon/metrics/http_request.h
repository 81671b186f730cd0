// Parses the request of a client to a small HTTP/1.1 server (RFC 9112). Pure; no byte is trusted.
//
// It knows only requests without a body: a request line and header fields, up to the empty line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string_view>

namespace rnbd {

// The longest head of a request, including its empty line.
constexpr std::size_t http_head_bytes_max = 8192;
constexpr std::size_t http_fields_max = 64;

// The status codes of our answers.
enum class HttpStatus : std::uint16_t {
    ok = 200,
    bad_request = 400,
    not_found = 404,
    method_not_allowed = 405,
    content_too_large = 413,
    fields_too_large = 431,
    version_not_supported = 505,
};
// "Not Found".
std::string_view reason_phrase(HttpStatus status) noexcept;

// The members are views into the head.
struct HttpRequest {
    std::string_view method;
    // Without the query: "/metrics".
    std::string_view path;
};

// The length of the head at the front of the input, including its empty line; none: the head is not
// complete yet.
std::optional<std::size_t> http_head_bytes(std::string_view input) noexcept;

// head: the bytes that http_head_bytes() delimits.
// ERRORS: bad_request (not an HTTP request, or one that two servers could read differently),
// content_too_large (it has a body), fields_too_large (more than http_fields_max),
// version_not_supported (not 1.x).
std::expected<HttpRequest, HttpStatus> parse_http_request(std::string_view head) noexcept;

}  // namespace rnbd
