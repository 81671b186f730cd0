// Any bytes of a client: what is taken for a request has a method and a path within its head, and
// bytes behind the head change nothing.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>

#include "daemon/metrics/http_request.h"
#include "rtrs/base/assert.h"

using namespace rnbd;

namespace {

bool is_within(std::string_view part, std::string_view whole) {
    const std::less_equal<const char*> not_after;
    return not_after(whole.data(), part.data()) &&
           not_after(part.data() + part.size(), whole.data() + whole.size());
}

bool is_visible(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    static_cast<void>(parse_http_request(input));
    const auto bytes = http_head_bytes(input);
    if (!bytes) return 0;
    RTRS_ASSERT(*bytes <= size);
    const std::string_view head = input.substr(0, *bytes);
    RTRS_ASSERT(head.find("\r\n\r\n") == *bytes - 4);
    const auto request = parse_http_request(head);
    if (!request) {
        RTRS_ASSERT(!reason_phrase(request.error()).empty());
        return 0;
    }
    RTRS_ASSERT(is_within(request->method, head) && is_within(request->path, head));
    RTRS_ASSERT(!request->method.empty() && is_visible(request->method));
    RTRS_ASSERT(request->path.starts_with('/') && is_visible(request->path));
    RTRS_ASSERT(request->path.find('?') == std::string_view::npos);
    return 0;
}
