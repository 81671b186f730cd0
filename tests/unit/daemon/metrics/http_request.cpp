#include "daemon/metrics/http_request.h"

#include <catch2/catch.hpp>
#include <string>

using namespace rnbd;

namespace {

HttpStatus refused(std::string_view head) {
    const auto request = parse_http_request(head);
    return request ? HttpStatus::ok : request.error();
}

}  // namespace

TEST_CASE("http request: what scrapers send") {
    const auto request = parse_http_request(
        "GET /metrics HTTP/1.1\r\nHost: a:1\r\nAccept: text/plain\r\nX: \r\n\r\n");
    REQUIRE(request);
    CHECK(request->method == "GET");
    CHECK(request->path == "/metrics");
    CHECK(parse_http_request("GET /metrics?x=/y HTTP/1.1\r\nhost:a\r\n\r\n")->path == "/metrics");
    CHECK(parse_http_request("GET http://a:1/metrics HTTP/1.1\r\nHost: a\r\n\r\n")->path ==
          "/metrics");
    CHECK(parse_http_request("HEAD / HTTP/1.0\r\n\r\n")->method == "HEAD");
    CHECK(parse_http_request("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
}

TEST_CASE("http request: a head ends with an empty line") {
    CHECK_FALSE(http_head_bytes(""));
    CHECK_FALSE(http_head_bytes("GET / HTTP/1.1\r\nHost: a\r\n\r"));
    CHECK_FALSE(http_head_bytes("GET / HTTP/1.1\n\n"));
    CHECK(http_head_bytes("a\r\n\r\nb") == 5u);
}

TEST_CASE("http request: what is no request is refused") {
    for (const char* line :
         {"", "GET", "GET /", "GET  HTTP/1.1", "GET / ", " / HTTP/1.1", "GET / HTTP/11",
          "GET / HTTP/1.1 ", "GET / http/1.1", "G\tT / HTTP/1.1", "GET metrics HTTP/1.1",
          "GET /a b HTTP/1.1", "GET /\x80 HTTP/1.1", "GET *  HTTP/1.1", "GET /\n HTTP/1.1"}) {
        CAPTURE(line);
        CHECK(refused(std::string(line) + "\r\nHost: a\r\n\r\n") == HttpStatus::bad_request);
    }
    for (const char* field :
         {"Host", ": a", " Host: a", "Ho st: a", "Host : a", "A: \x01", "A: b\n", "A: b\x7f"}) {
        CAPTURE(field);
        CHECK(refused("GET / HTTP/1.1\r\nHost: a\r\n" + std::string(field) + "\r\n\r\n") ==
              HttpStatus::bad_request);
    }
    CHECK(refused("GET / HTTP/1.1\r\nHost: a\r\n") == HttpStatus::bad_request);
    CHECK(refused("\r\n\r\n") == HttpStatus::bad_request);
    CHECK(refused("GET / HTTP/2.0\r\nHost: a\r\n\r\n") == HttpStatus::version_not_supported);
    CHECK(refused("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n") == HttpStatus::not_found);
}

TEST_CASE("http request: one Host, and no body") {
    CHECK(refused("GET / HTTP/1.1\r\n\r\n") == HttpStatus::bad_request);
    CHECK(refused("GET / HTTP/1.1\r\nHost: a\r\nHOST: b\r\n\r\n") == HttpStatus::bad_request);
    CHECK(refused("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n") ==
          HttpStatus::content_too_large);
    CHECK(refused("GET / HTTP/1.1\r\nHost: a\r\nTransfer-encoding: chunked\r\n\r\n") ==
          HttpStatus::content_too_large);
}

TEST_CASE("http request: so many fields and no more") {
    std::string head = "GET / HTTP/1.1\r\nHost: a\r\n";
    for (std::size_t i = 1; i < http_fields_max; ++i) head += "A: b\r\n";
    CHECK(refused(head + "\r\n") == HttpStatus::ok);
    CHECK(refused(head + "A: b\r\n\r\n") == HttpStatus::fields_too_large);
}
