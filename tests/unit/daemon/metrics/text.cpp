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
