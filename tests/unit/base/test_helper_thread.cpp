#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <optional>

#include "rtrs/base/helper_thread.h"

using namespace rtrs;

TEST_CASE("helper thread: work is run in its order, and its end is told") {
    std::promise<int> told;
    int order = 0;
    HelperThread helper([](const std::function<void()>& done) { done(); });
    int first = 0;
    REQUIRE(helper.run([&] { first = ++order; }, [] {}));
    REQUIRE(helper.run([&] { ++order; }, [&] { told.set_value(order); }));
    CHECK(told.get_future().get() == 2);
    CHECK(first == 1);
}

TEST_CASE("helper thread: who ends it waits for the work that runs, unless it was abandoned") {
    const bool abandoned = GENERATE(false, true);
    std::promise<void> begun;
    std::promise<void> may_end;
    auto ended = std::make_shared<std::promise<void>>();
    auto has_ended = ended->get_future();
    int told = 0;
    std::optional<HelperThread> helper;
    helper.emplace([&](const std::function<void()>& done) { done(); });
    REQUIRE(helper->run(
        [&begun, gate = may_end.get_future().share(), ended] {
            begun.set_value();
            gate.wait();
            ended->set_value();
        },
        [&] { ++told; }));
    begun.get_future().wait();
    if (abandoned) {
        helper->abandon();
        helper.reset();
        may_end.set_value();
        has_ended.wait();
        CHECK(told == 0);
    } else {
        may_end.set_value();
        helper.reset();
        CHECK(has_ended.wait_for(std::chrono::seconds(0)) == std::future_status::ready);
        CHECK(told == 1);
    }
}
