#include "rtrs/base/latency_histogram.h"

#include <catch2/catch.hpp>

using namespace rtrs;
using namespace std::chrono_literals;

TEST_CASE("latency histogram: a power of two is the last of its bucket") {
    for (std::size_t i = 0; i + 1 < LatencyHistogram::bucket_count; ++i) {
        LatencyHistogram histogram;
        histogram.add(LatencyHistogram::upper_bound(i));
        histogram.add(LatencyHistogram::upper_bound(i) + 1ns);
        CAPTURE(i);
        CHECK(histogram.buckets()[i] == 1);
        CHECK(histogram.buckets()[i + 1] == 1);
    }
    CHECK(LatencyHistogram::upper_bound(LatencyHistogram::bucket_count - 2) > 60s);
}

TEST_CASE("latency histogram: the ends of the scale") {
    LatencyHistogram histogram;
    histogram.add(0ns);
    histogram.add(-1ns);
    histogram.add(1us);
    CHECK(histogram.buckets().front() == 3);
    histogram.add(1h);
    histogram.add(Duration::max() - 1us);
    CHECK(histogram.buckets().back() == 2);
    CHECK(histogram.count() == 5);
    CHECK(histogram.max() == Duration::max() - 1us);
    CHECK(histogram.sum() == Duration::max());
}

TEST_CASE("latency histogram: percentiles are upper bounds, and no more than the greatest entry") {
    LatencyHistogram histogram;
    CHECK(histogram.percentile(50) == 0ns);
    for (int i = 0; i < 90; ++i) histogram.add(100us);  // in (64 us, 128 us]
    for (int i = 0; i < 9; ++i) histogram.add(3ms);     // in (2048 us, 4096 us]
    histogram.add(70s);
    CHECK(histogram.percentile(0.1) == 128us);
    CHECK(histogram.percentile(50) == 128us);
    CHECK(histogram.percentile(90) == 128us);
    CHECK(histogram.percentile(90.5) == 4096us);
    CHECK(histogram.percentile(99) == 4096us);
    CHECK(histogram.percentile(99.9) == 70s);
    CHECK(histogram.percentile(100) == 70s);

    LatencyHistogram one;
    one.add(100us);
    CHECK(one.percentile(99) == 100us);
}
