#include "rnbd-client/not_open.h"

#include <catch2/catch.hpp>

using namespace rnbd;
using rtrs::PathState;
using rtrs::Refusing;

namespace {

rtrs::ClientSessionStatus without_path(std::initializer_list<const char*> reasons,
                                       PathState state = PathState::backoff) {
    rtrs::ClientSessionStatus session{.reason = "connecting"};
    char label = 'a';
    for (const char* reason : reasons) {
        rtrs::PathStatus path;
        path.label = label++;
        path.state = state;
        path.reason = reason;
        session.paths.push_back(path);
    }
    return session;
}

std::string refusing(Refusing how, rtrs::ClientSessionStatus session) {
    session.refusing = how;
    return why_not_connected(session);
}

}  // namespace

TEST_CASE("no path: the reason of its paths, with their names if they differ") {
    CHECK(why_not_connected(without_path({"refused"})) == "refused");
    CHECK(why_not_connected(without_path({"refused", "refused"})) == "refused");
    CHECK(why_not_connected(without_path({"", "refused"})) == "refused");
    CHECK(why_not_connected(without_path({"refused", "", "no route"})) ==
          "a: refused; c: no route");
    CHECK(why_not_connected(without_path({"", ""})) == "connecting");
}

TEST_CASE("no path: that requests fail at once is said, and since when") {
    CHECK(refusing(Refusing::after_fail_fast_time, without_path({"refused"})) ==
          "refused; its fail-fast time is over, new requests fail");
    CHECK(refusing(Refusing::after_hold_time, without_path({"refused"})) ==
          "refused; its hold time is over, requests fail");
    // A path was told to come back: what is refused is so until it is up.
    CHECK(refusing(Refusing::after_all_attempts, without_path({"refused"})) ==
          "refused; requests fail");
}

TEST_CASE("no path: none is dialled any more, by the operator or because all were given up") {
    auto session = without_path({"disconnected", "refused"}, PathState::closed);
    CHECK(why_not_connected(session) == "a: disconnected; b: refused; no path will be dialled");
    session.reason = "given up";
    CHECK(refusing(Refusing::after_all_attempts, session) == "given up; requests fail");
    session.reason = "taken over";
    CHECK(refusing(Refusing::taken_over, session) ==
          "taken over; requests fail until its devices are unmapped and mapped again");
}

TEST_CASE("no path: what the session says itself while a path is up counts") {
    auto session = without_path({"refused", ""});
    session.paths.back().state = PathState::connected;
    session.reason = "the server has not finished";
    CHECK(why_not_connected(session) == "the server has not finished");
    CHECK(refusing(Refusing::after_hold_time, session) ==
          "the server has not finished; its hold time is over, requests fail");
}
