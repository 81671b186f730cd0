#include "rnbd-client/not_open.h"

#include <catch2/catch.hpp>

using namespace rnbd;

namespace {

rtrs::ClientSessionStatus without_path(std::initializer_list<const char*> reasons) {
    rtrs::ClientSessionStatus session{.reason = "connecting"};
    char label = 'a';
    for (const char* reason : reasons) {
        rtrs::PathStatus path;
        path.label = label++;
        path.state = rtrs::PathState::backoff;
        path.reason = reason;
        session.paths.push_back(path);
    }
    return session;
}

}  // namespace

TEST_CASE("no path: the reason of its paths, with their names if they differ") {
    CHECK(why_no_path(without_path({"refused"}), {}) == "refused");
    CHECK(why_no_path(without_path({"refused", "refused"}), {}) == "refused");
    CHECK(why_no_path(without_path({"", "refused"}), {}) == "refused");
    CHECK(why_no_path(without_path({"refused", "", "no route"}), {}) == "a: refused; c: no route");
}

TEST_CASE("no path: the session's reason where no path has one, or none comes back") {
    CHECK(why_no_path(without_path({"", ""}), {}) == "connecting");
    CHECK(why_no_path(without_path({"refused"}), rtrs::Error::no_path) == "refused");
    auto taken_over = without_path({"closed by the server"});
    taken_over.reason = "taken over";
    CHECK(why_no_path(taken_over, rtrs::Error::rejected) == "taken over");
}
