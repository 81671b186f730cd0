#include "daemon/metrics/text.h"

#include <catch2/catch.hpp>

using namespace rnbd;
using namespace std::chrono_literals;

TEST_CASE("metrics text: families, units and suffixes as OpenMetrics has them") {
    MetricsText text;
    text.family({"a_size", "bytes", MetricType::gauge, {"export"}, "Its size."});
    text.sample({"vol1"}, std::uint64_t{4096});
    text.family({"a_requests", "", MetricType::counter, {"export", "operation"}, "Requests."});
    text.sample({"vol1", "read"}, std::uint64_t{3});
    text.family({"a_build", "", MetricType::info, {"version"}, "What runs."});
    text.sample({"1.0"}, std::uint64_t{1});
    text.family({"a_uptime", "seconds", MetricType::gauge, {}, "Since the start."});
    text.sample({}, 1.5);
    CHECK(text.finish() ==
          "# TYPE a_size_bytes gauge\n"
          "# UNIT a_size_bytes bytes\n"
          "# HELP a_size_bytes Its size.\n"
          "a_size_bytes{export=\"vol1\"} 4096\n"
          "# TYPE a_requests counter\n"
          "# HELP a_requests Requests.\n"
          "a_requests_total{export=\"vol1\",operation=\"read\"} 3\n"
          "# TYPE a_build info\n"
          "# HELP a_build What runs.\n"
          "a_build_info{version=\"1.0\"} 1\n"
          "# TYPE a_uptime_seconds gauge\n"
          "# UNIT a_uptime_seconds seconds\n"
          "# HELP a_uptime_seconds Since the start.\n"
          "a_uptime_seconds 1.5\n"
          "# EOF\n");
}

TEST_CASE("metrics text: labels of strangers break nothing, and come once") {
    MetricsText text;
    text.family({"a", "", MetricType::gauge, {"name"}, "A."});
    text.sample({"\"} 1\n# EOF\\"}, std::uint64_t{1});
    text.sample({"\xc3\x28"}, std::uint64_t{2});
    text.sample({"x"}, std::uint64_t{3});
    text.sample({"x"}, std::uint64_t{4});
    CHECK(text.finish() ==
          "# TYPE a gauge\n# HELP a A.\n"
          "a{name=\"\\\"} 1\\\\x0a# EOF\\\\\"} 1\n"
          "a{name=\"\\\\xc3(\"} 2\n"
          "a{name=\"x\"} 3\n"
          "# EOF\n");
}

TEST_CASE("metrics text: a histogram's buckets count what is below them") {
    rtrs::LatencyHistogram durations;
    durations.add(1us);
    durations.add(3us);
    durations.add(100s);
    MetricsText text;
    text.family({"d", "seconds", MetricType::histogram, {"o"}, "D."});
    text.histogram({"read"}, durations);
    const std::string all = text.finish();
    for (const char* line :
         {"d_seconds_bucket{o=\"read\",le=\"1e-06\"} 1\n",
          "d_seconds_bucket{o=\"read\",le=\"2e-06\"} 1\n",
          "d_seconds_bucket{o=\"read\",le=\"4e-06\"} 2\n",
          "d_seconds_bucket{o=\"read\",le=\"67.108864\"} 2\n",
          "d_seconds_bucket{o=\"read\",le=\"+Inf\"} 3\n", "d_seconds_count{o=\"read\"} 3\n",
          "d_seconds_sum{o=\"read\"} 100.000004\n"}) {
        CAPTURE(line);
        CHECK(all.find(line) != std::string::npos);
    }
}

TEST_CASE("metrics text: in pieces it is the same, and none is much longer than was asked for") {
    rtrs::LatencyHistogram durations;
    durations.add(3us);
    const auto made = [&] {
        MetricsText text;
        text.family({"empty", "", MetricType::gauge, {}, "None."});
        text.family({"a", "bytes", MetricType::counter, {"name"}, "A."});
        for (int i = 0; i < 100; ++i) text.sample({std::to_string(i % 70)}, std::uint64_t{1});
        text.family({"d", "seconds", MetricType::histogram, {"o", "p"}, "D."});
        text.histogram({"read", "x"}, durations);
        text.histogram({"write", "y"}, durations);
        durations.add(5s);  // what is noted stays as it was
        return text;
    };
    const std::string whole = made().finish();
    durations = {};
    durations.add(3us);
    MetricsText text = made();
    CHECK(whole.size() <= text.bytes_max());
    std::string pieces;
    for (bool more = true; more;) {
        const std::size_t before = pieces.size();
        more = text.write(pieces, 100);
        CHECK(pieces.size() < before + 100 + 30 * 80);
        if (more) CHECK(pieces.size() >= before + 100);
    }
    CHECK(pieces == whole);
    CHECK(whole.find("_bucket{o=\"write\",p=\"y\",le=\"+Inf\"} 1\n") != std::string::npos);
}
