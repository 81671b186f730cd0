// What there is no memory for says so, and not what was wrong before. All plain forms of operator
// new are replaced, so that each delete meets its own new under AddressSanitizer too.
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>

#include "librnbd/librnbd.h"

namespace {

thread_local bool no_memory = false;

}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return no_memory ? nullptr : std::malloc(bytes);
}
void* operator new(std::size_t bytes) {
    if (void* at = operator new(bytes, std::nothrow)) return at;
    throw std::bad_alloc();
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }

namespace {

const std::string text = "there is no memory for it";

template <typename Call>
int without_memory(Call call) {
    no_memory = true;
    const int result = call();
    no_memory = false;
    return result;
}

void never(void* /*context*/, int /*error*/) { FAIL("it was not accepted"); }

}  // namespace

TEST_CASE("a session says that there was no memory") {
    rnbd_session* session = nullptr;
    REQUIRE(without_memory([&] { return rnbd_session_new(&session); }) == -ENOMEM);
    REQUIRE(rnbd_session_new(&session) == 0);
    CHECK(rnbd_session_set(session, "nmae", "x") == -EINVAL);
    const std::string wrong_key = rnbd_session_error(session);
    CHECK(wrong_key.find("nmae") != std::string::npos);
    const auto set = [&] { return rnbd_session_set(session, "nmae", "x"); };
    CHECK(without_memory(set) == -ENOMEM);
    CHECK(rnbd_session_error(session) == text);
    CHECK(set() == -EINVAL);
    CHECK(rnbd_session_error(session) == wrong_key);

    REQUIRE(rnbd_session_set(session, "name", "unit-librnbd-no-memory") == 0);
    REQUIRE(rnbd_session_add_path(session, "127.0.0.1:1") == 0);
    CHECK(without_memory([&] { return rnbd_session_start(session); }) == -ENOMEM);
    CHECK(rnbd_session_error(session) == text);
    REQUIRE(rnbd_session_start(session) == 0);
    REQUIRE(rnbd_session_free(session) == 0);
}

TEST_CASE("a volume says that there was no memory") {
    rnbd_session* session = nullptr;
    rnbd_volume* volume = nullptr;
    REQUIRE(rnbd_session_new(&session) == 0);
    REQUIRE(rnbd_session_set(session, "name", "unit-librnbd-no-memory") == 0);
    REQUIRE(rnbd_session_add_path(session, "127.0.0.1:1") == 0);
    REQUIRE(rnbd_session_start(session) == 0);
    REQUIRE(rnbd_volume_open(session, "vol", 0, &volume) == 0);
    std::array<char, 512> memory{};
    const std::array<iovec, 1> one{{{memory.data(), memory.size()}}};
    const auto read = [&] { return rnbd_readv(volume, one.data(), 1, 0, 0, never, nullptr); };
    CHECK(without_memory(read) == -ENOMEM);
    CHECK(rnbd_volume_error(volume) == text);
    CHECK(read() == -ENOTCONN);
    const std::string not_open = rnbd_volume_error(volume);
    CHECK(not_open.find("not open yet") != std::string::npos);
    rnbd_volume_info info{};
    const auto get_info = [&] { return rnbd_volume_get_info(volume, &info, sizeof info); };
    CHECK(without_memory(get_info) == -ENOMEM);
    CHECK(rnbd_volume_error(volume) == text);
    const auto extents = [](void*, int, const rnbd_extent*, std::size_t) {};
    const auto ask = [&] { return rnbd_get_extents(volume, 0, 512, extents, nullptr); };
    CHECK(read() == -ENOTCONN);
    CHECK(without_memory(ask) == -ENOMEM);
    CHECK(rnbd_volume_error(volume) == text);
    REQUIRE(rnbd_session_free(session) == 0);
}
