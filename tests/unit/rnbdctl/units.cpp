#include "rnbdctl/units.h"

#include <catch2/catch.hpp>
#include <limits>

#include "rnbdctl/table.h"

using namespace rnbd;

TEST_CASE("units: times with units, or seconds") {
    using namespace std::chrono_literals;
    CHECK(time_of("0") == 0ns);
    CHECK(time_of("5") == 5s);
    CHECK(time_of("0.05") == 50ms);
    CHECK(time_of("250us") == 250us);
    CHECK(time_of("1.5min") == 90s);
    CHECK(time_of("2h") == 2h);
    CHECK(time_of("1d") == 24h);
    for (const char* const wrong : {"", "s", "-1s", "+1s", "1 s", "1m", "1e3", "inf", "nan", "0x1",
                                    "200000000d", "9999999999999999999999999s"}) {
        CHECK_FALSE(time_of(wrong));
    }
}

TEST_CASE("units: sizes, ages, latencies, counts") {
    CHECK(size_words(0) == "0 B");
    CHECK(size_words(1023) == "1023 B");
    CHECK(size_words(1ull << 30) == "1 GiB");
    CHECK(size_words((1ull << 30) + (1ull << 29)) == "1.5 GiB");
    CHECK(size_words(std::numeric_limits<std::uint64_t>::max()) == "16.0 EiB");
    CHECK(age_words(4.9) == "4s");
    CHECK(age_words(200) == "3m 20s");
    CHECK(age_words(18060) == "5h 1m");
    CHECK(age_words(2 * 86400 + 3 * 3600) == "2d 3h");
    CHECK(age_words(-1) == "0s");
    CHECK(age_words(1e300) == "3472222d 5h");
    CHECK(age_words(std::numeric_limits<double>::quiet_NaN()) == "0s");
    CHECK(short_age_words(0.42) == "420 ms");
    CHECK(short_age_words(1.25) == "1.2 s");
    CHECK(short_age_words(200) == "3m 20s");
    CHECK(setting_words(1.25) == "1.25 s");
    CHECK(setting_words(5) == "5 s");
    CHECK(setting_words(0.5) == "500 ms");
    CHECK(setting_words(90) == "1m 30s");
    CHECK(setting_words(90.5) == "1m 30.5s");
    CHECK(setting_words(59.999999) == "59.999999 s");
    CHECK(setting_words(3659) == "1h 59s");
    CHECK(setting_words(3600) == "1h");
    CHECK(setting_words(86400 + 60.25) == "1d 1m 0.25s");
    CHECK(setting_words(86400 * 365.0 + 0.000125) == "365d 0.000125s");
    CHECK(setting_words(1e300) == "3472222d 5h 20m");
    CHECK(setting_words(std::numeric_limits<double>::quiet_NaN()) == "0 s");
    CHECK(short_age_words(-1) == "0 ms");
    CHECK(latency_words(950) == "950 us");
    CHECK(latency_words(1200) == "1.2 ms");
    CHECK(latency_words(2'500'000) == "2.5 s");
    CHECK(latency_words(0) == "-");
    CHECK(count_words(7) == "7");
    CHECK(count_words(1234567) == "1,234,567");
    CHECK(terminal_text("a\x1b[31m") == "a\\x1b[31m");
    CHECK(terminal_text("a\xc2\x9b"
                        "31m") == "a\\xc2\\x9b31m");
    CHECK(terminal_text("\xc3\xa4\xc2\xa0\xc2") == "\xc3\xa4\xc2\xa0\xc2");
}

TEST_CASE("table: columns are aligned, empty cells are dashes") {
    Table table({{"NAME"}, {"SIZE", Table::Align::right}, {"STATE"}});
    table.add({"a", "1 GiB", "ready"});
    table.add({"long", "", "\xc3\xa4"});
    CHECK(table.text(2) ==
          "  NAME   SIZE  STATE\n"
          "  a     1 GiB  ready\n"
          "  long      -  \xc3\xa4\n");
}

TEST_CASE("table: one that is too wide goes without its least important columns") {
    Table table({{"NAME"},
                 {"SENT", Table::Align::right, 2},
                 {"DONE", Table::Align::right, 1},
                 {"LATE", Table::Align::right, 2},
                 {"REASON"}});
    table.add({"vol1", "1", "2", "3", "a reason that is longer than all of it"});
    const std::string all =
        "NAME  SENT  DONE  LATE  REASON\n"
        "vol1     1     2     3  a reason that is longer than all of it\n";
    CHECK(table.text(0) == all);
    struct Unlimited {
        ~Unlimited() { limit_table_width(std::nullopt); }
    } at_end;
    limit_table_width(30);
    CHECK(table.text(0) == all);
    limit_table_width(29);
    CHECK(table.text(0) ==
          "NAME  DONE  LATE  REASON\n"
          "vol1     2     3  a reason that is longer than all of it\n"
          "(no room here for SENT: a wider terminal or `| cat` shows all)\n");
    CHECK(table.text(2).starts_with("  NAME  DONE  LATE  REASON\n"));
    limit_table_width(20);
    CHECK(table.text(2) ==
          "  NAME  DONE  REASON\n"
          "  vol1     2  a reason that is longer than all of it\n"
          "  (no room here for SENT, LATE: a wider terminal or `| cat` shows all)\n");
    // What is never left out stays.
    limit_table_width(1);
    CHECK(table.text(0).starts_with("NAME  REASON\nvol1  a reason"));
}
