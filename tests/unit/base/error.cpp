#include "rtrs/base/error.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <set>
#include <string>

using namespace rtrs;

namespace {
constexpr Error all[] = {Error::path_lost,     Error::no_path,   Error::protocol,
                         Error::rejected,      Error::timed_out, Error::closed,
                         Error::remote_access, Error::checksum,  Error::closed_by_peer};
}

TEST_CASE("error: every code has a text of its own and an errno that fits nine bits") {
    std::set<std::string> texts;
    for (const Error error : all) {
        const std::error_code code = error;
        REQUIRE(code.category() == error_category());
        REQUIRE(code.message().find("unknown") == std::string::npos);
        texts.insert(code.message());
        REQUIRE(to_errno(code) > 0);
        REQUIRE(to_errno(code) <= 511);
    }
    REQUIRE(texts.size() == std::size(all));
    REQUIRE(std::string(error_category().name()) == "rtrs");
}

TEST_CASE("error: errno values pass as themselves, others become EIO") {
    REQUIRE(to_errno({}) == 0);
    REQUIRE(!from_errno(0));
    for (const int value : {EIO, ENOSPC, EROFS, EPERM, EINVAL}) {
        REQUIRE(to_errno(from_errno(value)) == value);
        REQUIRE(to_errno(from_errno(-value)) == value);
    }
    REQUIRE(to_errno(from_errno(512)) == EIO);
    REQUIRE(to_errno(std::error_code(99, error_category())) == EIO);
    REQUIRE(std::error_code(99, error_category()).message().find("99") != std::string::npos);
}
