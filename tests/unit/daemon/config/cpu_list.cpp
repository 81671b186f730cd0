#include "daemon/config/cpu_list.h"

#include <catch2/catch.hpp>
#include <thread>

using namespace rnbd;

TEST_CASE("cpu list: numbers and ranges are read, and written ascending") {
    const auto again = [](std::string_view text) {
        const auto cpus = parse_cpu_list(text);
        return cpus ? to_string(*cpus) : "refused";
    };
    CHECK(again("0") == "0");
    CHECK(again("0-3,8") == "0-3,8");
    CHECK(again("8,0-3") == "0-3,8");
    CHECK(again("1,2") == "1,2");
    CHECK(again("2,3,4") == "2-4");
    CHECK(again("5-5") == "5");
    CHECK(again("0-1023") == "0-1023");
    CHECK(again("1023") == "1023");
    for (const char* wrong : {"", ",", "0,", ",0", "-", "0-", "-1", "3-1", "1024", "0-1024", "a",
                              "0 1", " 0", "0-1-2", "0x1", "+1", "99999999999999999999"}) {
        INFO(wrong);
        CHECK(again(wrong) == "refused");
    }
    CHECK(to_string(CpuList{}).empty());
}

TEST_CASE("cpu list: a thread runs where it is told, on what there is of it") {
    // In a thread of its own: the others of this program stay where they are.
    std::thread([] {
        const auto all = run_on_cpus(CpuList{}.set());
        REQUIRE(all);
        REQUIRE(all->any());
        std::size_t first = 0;
        while (!(*all)[first]) ++first;
        CpuList wanted;
        wanted.set(first);
        wanted.set(cpus_max - 1);  // no machine of ours has so many
        CHECK(run_on_cpus(wanted) == CpuList{}.set(first));
        CHECK(run_on_cpus(CpuList{}.set(cpus_max - 1)).error() == std::errc::invalid_argument);
    }).join();
}
