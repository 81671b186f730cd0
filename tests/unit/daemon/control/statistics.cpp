#include "daemon/control/statistics.h"

#include <catch2/catch.hpp>

#include "rtrs/reactor.h"

using namespace rnbd;
using nlohmann::json;

namespace {

json session(std::uint64_t reads, std::uint64_t writes) {
    return {{"kind", "session"}, {"name", "host-a"}, {"reads", reads}, {"writes", writes}};
}

}  // namespace

TEST_CASE("statistics: counted since the last reset") {
    const auto reactor = rtrs::Reactor::create().value();
    json items = json::array({session(1000, 10)});
    Statistics statistics(*reactor, "rnbd-server", [&] { return items; });
    const auto shown = [&] { return statistics.document()["items"]; };
    CHECK(shown() == json::array({session(1000, 10)}));
    statistics.reset();
    CHECK(shown() == json::array({session(0, 0)}));
    items = json::array({session(1001, 12)});
    CHECK(shown() == json::array({session(1, 2)}));

    SECTION("another one of the same name has had nothing before") {
        items = json::array({session(5, 100)});
        CHECK(shown() == json::array({session(5, 100)}));
        items = json::array({session(1500, 101)});
        CHECK(shown() == json::array({session(1500, 101)}));
    }
    SECTION("one that came since the reset") {
        items.push_back({{"kind", "session"}, {"name", "host-b"}, {"reads", 7}, {"writes", 0}});
        CHECK(shown()[1]["reads"] == 7);
    }
}
