#include "daemon/metrics/http_request.h"

#include <algorithm>

namespace rnbd {

namespace {

constexpr std::string_view line_end = "\r\n";
constexpr std::string_view head_end = "\r\n\r\n";

constexpr bool is_token(char c) noexcept {
    constexpr std::string_view marks = "!#$%&'*+-.^_`|~";
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           marks.find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) noexcept {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return is_token(c); });
}

// Of a target: no space, nothing that is not ASCII.
bool is_target(std::string_view text) noexcept {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

bool is_value(std::string_view text) noexcept {
    return std::ranges::all_of(text, [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
    });
}

bool equal_ignoring_case(std::string_view one, std::string_view other) noexcept {
    const auto lower = [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    };
    return std::ranges::equal(one, other, {}, lower, lower);
}

std::string_view trimmed(std::string_view text) noexcept {
    constexpr std::string_view blanks = " \t";
    const std::size_t begin = text.find_first_not_of(blanks);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string_view take_line(std::string_view& rest) noexcept {
    const std::size_t end = rest.find(line_end);
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + line_end.size());
    return line;
}

// "/metrics?x" and "http://host:1/metrics" mean /metrics.
std::expected<std::string_view, HttpStatus> path_of(std::string_view target) noexcept {
    constexpr std::string_view scheme = "http://";
    if (target.starts_with(scheme)) {
        const std::size_t slash = target.find('/', scheme.size());
        if (slash == std::string_view::npos) return std::unexpected(HttpStatus::not_found);
        target.remove_prefix(slash);
    }
    if (!target.starts_with('/')) return std::unexpected(HttpStatus::bad_request);
    return target.substr(0, target.find('?'));
}

struct RequestLine {
    HttpRequest request;
    bool host_needed = false;
};

std::expected<RequestLine, HttpStatus> parse_request_line(std::string_view line) noexcept {
    const std::size_t first = line.find(' ');
    const std::size_t last = line.rfind(' ');
    if (first == std::string_view::npos || first == last) {
        return std::unexpected(HttpStatus::bad_request);
    }
    const std::string_view method = line.substr(0, first);
    const std::string_view target = line.substr(first + 1, last - first - 1);
    const std::string_view version = line.substr(last + 1);
    if (!is_token(method) || !is_target(target)) return std::unexpected(HttpStatus::bad_request);
    const bool named = version.size() == 8 && version.starts_with("HTTP/") && version[6] == '.' &&
                       version[5] >= '0' && version[5] <= '9' && version[7] >= '0' &&
                       version[7] <= '9';
    if (!named) return std::unexpected(HttpStatus::bad_request);
    if (version[5] != '1') return std::unexpected(HttpStatus::version_not_supported);
    const auto path = path_of(target);
    if (!path) return std::unexpected(path.error());
    return RequestLine{{method, *path}, version[7] != '0'};
}

// Counts Host, refuses what announces a body.
std::expected<void, HttpStatus> check_field(std::string_view line, unsigned& hosts) noexcept {
    const std::size_t colon = line.find(':');
    // A line that begins with a blank would continue the one before: nobody does that any more.
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)) ||
        !is_value(line.substr(colon + 1))) {
        return std::unexpected(HttpStatus::bad_request);
    }
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (equal_ignoring_case(name, "Host")) ++hosts;
    if (equal_ignoring_case(name, "Transfer-Encoding")) {
        return std::unexpected(HttpStatus::content_too_large);
    }
    if (equal_ignoring_case(name, "Content-Length") && value != "0") {
        return std::unexpected(HttpStatus::content_too_large);
    }
    return {};
}

}  // namespace

std::string_view reason_phrase(HttpStatus status) noexcept {
    switch (status) {
        case HttpStatus::ok:
            return "OK";
        case HttpStatus::bad_request:
            return "Bad Request";
        case HttpStatus::not_found:
            return "Not Found";
        case HttpStatus::method_not_allowed:
            return "Method Not Allowed";
        case HttpStatus::content_too_large:
            return "Content Too Large";
        case HttpStatus::fields_too_large:
            return "Request Header Fields Too Large";
        case HttpStatus::version_not_supported:
            return "HTTP Version Not Supported";
    }
    return "";
}

std::optional<std::size_t> http_head_bytes(std::string_view input) noexcept {
    const std::size_t end = input.find(head_end);
    if (end == std::string_view::npos) return std::nullopt;
    return end + head_end.size();
}

std::expected<HttpRequest, HttpStatus> parse_http_request(std::string_view head) noexcept {
    if (!head.ends_with(head_end)) return std::unexpected(HttpStatus::bad_request);
    std::string_view rest = head;
    const auto line = parse_request_line(take_line(rest));
    if (!line) return std::unexpected(line.error());
    unsigned hosts = 0;
    std::size_t fields = 0;
    for (std::string_view field = take_line(rest); !field.empty(); field = take_line(rest)) {
        if (++fields > http_fields_max) return std::unexpected(HttpStatus::fields_too_large);
        if (const auto good = check_field(field, hosts); !good) {
            return std::unexpected(good.error());
        }
    }
    if (hosts > 1 || (line->host_needed && hosts == 0)) {
        return std::unexpected(HttpStatus::bad_request);
    }
    return line->request;
}

}  // namespace rnbd
