#include "rtrs/base/helper_thread.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <optional>

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
    const auto told = std::make_shared<std::atomic<int>>(0);
    std::promise<void> over;  // kept by what is to be told, which goes last
    auto its_end = over.get_future();
    auto last = std::make_shared<std::promise<void>>(std::move(over));
    std::optional<HelperThread> helper;
    helper.emplace([](const std::function<void()>& done) { done(); });
    REQUIRE(helper->run(
        [&begun, gate = may_end.get_future().share()] {
            begun.set_value();
            gate.wait();
        },
        [told, last = std::move(last)] { ++*told; }));
    begun.get_future().wait();
    if (abandoned) {
        helper->abandon();
        helper.reset();
        may_end.set_value();
    } else {
        may_end.set_value();
        helper.reset();
    }
    // Broken with the last of it.
    CHECK_THROWS_AS(its_end.get(), std::future_error);
    CHECK(*told == (abandoned ? 0 : 1));
}
