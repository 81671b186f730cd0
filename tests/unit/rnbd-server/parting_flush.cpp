// The last flush of a storage that is gone: its result, once, and how long it is waited for.
#include "rnbd-server/parting_flush.h"

#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "rtrs/base/error.h"

using namespace rnbd;
using namespace std::chrono_literals;

namespace {

constexpr rtrs::Instant begun{100s};

// That a real thread ends is waited for; `now` is a number here.
std::error_code result_of(PartingFlush& flush, rtrs::Instant now) {
    for (;;) {
        if (const auto result = flush.take_result(now)) return *result;
        std::this_thread::yield();
    }
}

}  // namespace

TEST_CASE("parting flush: its result is taken once, and another one may follow") {
    PartingFlush flush;
    CHECK(!flush.under_way());
    for (const int error : {0, EIO, 0}) {
        flush.begin([error] { return rtrs::from_errno(error); }, "file /a", begun);
        CHECK(flush.under_way());
        CHECK(flush.from() == "file /a");
        CHECK(result_of(flush, begun) == rtrs::from_errno(error));
        CHECK(!flush.under_way());
    }
}

TEST_CASE("parting flush: one that hangs is waited for, but not for ever") {
    PartingFlush flush;
    std::promise<void> ends;
    flush.begin(
        [end = ends.get_future().share()] {
            end.wait();
            return std::error_code();
        },
        "disk", begun);
    CHECK(!flush.take_result(begun));
    CHECK(!flush.takes_long(begun));
    CHECK(!flush.take_result(begun + 19s));
    CHECK(flush.takes_long(begun + 19s));
    CHECK(flush.under_way());
    rtrs::Instant end = begun + 20s;
    if (GENERATE(false, true)) {
        end = begun + 19s;
        flush.give_up(end);
    }
    CHECK(flush.take_result(end) == rtrs::from_errno(ETIMEDOUT));
    CHECK(!flush.under_way());
    ends.set_value();
}
