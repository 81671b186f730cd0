#include "rtrs/base/detached_call.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>

using namespace rtrs;
using namespace std::chrono_literals;

TEST_CASE("detached call: its result, once what it held is gone") {
    std::weak_ptr<int> watched;
    auto call = DetachedCall<std::string>::start(
        [mine = std::make_shared<int>(7), &watched]() mutable {
            watched = mine;
            return std::string("done");
        },
        "test");
    REQUIRE(call);
    REQUIRE(call->wait_for(10s));
    CHECK(call->is_over());
    CHECK(call->result() == "done");
    CHECK(watched.expired());
}

TEST_CASE("detached call: nobody waits for one that does not end") {
    std::promise<void> answer;
    std::promise<void> ended;
    {
        const auto call = DetachedCall<int>::start(
            [&] {
                answer.get_future().wait();
                ended.set_value();
                return 1;
            },
            "test");
        REQUIRE(call);
        CHECK_FALSE(call->is_over());
        CHECK_FALSE(call->wait_for(1ms));
    }
    answer.set_value();
    ended.get_future().wait();
}
