#include "rtrs/core/remembered_sessions.h"

#include <catch2/catch.hpp>

using namespace rtrs;

namespace {

Uuid session(int number) {
    Uuid id;
    id.bytes[0] = static_cast<std::byte>(number);
    return id;
}

}  // namespace

TEST_CASE("remembered sessions: the oldest is forgotten") {
    RememberedSessions sessions(3);
    for (int number = 1; number <= 4; ++number) sessions.remember(session(number));
    CHECK(!sessions.contains(session(1)));
    for (int number = 2; number <= 4; ++number) CHECK(sessions.contains(session(number)));
}

TEST_CASE("remembered sessions: what happens once more makes it the newest, and pushes none out") {
    RememberedSessions sessions(3);
    for (int number = 1; number <= 3; ++number) sessions.remember(session(number));
    sessions.remember(session(1));
    for (int number = 1; number <= 3; ++number) CHECK(sessions.contains(session(number)));
    sessions.remember(session(4));
    CHECK(sessions.contains(session(1)));
    CHECK(!sessions.contains(session(2)));
}
