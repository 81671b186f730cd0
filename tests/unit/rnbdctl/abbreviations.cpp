// Short forms, typos, completion and rates.
#include "rnbdctl/abbreviations.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "rnbdctl/colour.h"
#include "rnbdctl/completion.h"
#include "rnbdctl/rates.h"
#include "rnbdctl/terminal_size.h"
#include "rnbdctl/views.h"

using namespace rnbd;
using Words = std::vector<std::string>;
using nlohmann::json;

namespace {

Words written(const Words& words) {
    CommandTree tree;
    const auto result = write_out(tree, words);
    return result ? *result : Words{result.error()};
}

Words completed(const Words& words) {
    return complete(words, {.server = "/nonexistent/s", .client = "/nonexistent/c"});
}

}  // namespace

TEST_CASE("rnbdctl: the beginning of one command stands for it") {
    CHECK(written({"expo"}) == Words{"exports"});
    CHECK(written({"--timeout", "5", "pa", "rem", "s", "p"}) ==
          Words{"--timeout", "5", "paths", "remove", "s", "p"});
    CHECK(written({"exports", "res", "e", "1GiB"}) == Words{"exports", "resize", "e", "1GiB"});
    CHECK(written({"list", "--json"}) == Words{"list", "--json"});
    // What may be a session stays one.
    CHECK(written({"paths", "add"}) == Words{"paths", "add"});
    CHECK(written({"paths", "re"}) == Words{"paths", "re"});
    CHECK(written({"paths", "s", "--timeout", "5"}) == Words{"paths", "s", "--timeout", "5"});
    CHECK(written({"unmap", "sta"}) == Words{"unmap", "sta"});
}

TEST_CASE("rnbdctl: what is no command, or several, is said with the nearest") {
    CHECK(written({"exprots"}).front().find("did you mean exports?") != std::string::npos);
    CHECK(written({"stats", "resett"}).front().find("did you mean reset?") != std::string::npos);
    CHECK(written({"disconnect", "s", "p"}).front() ==
          "no command \"disconnect\": did you mean paths disconnect? (see --help)");
    CHECK(written({"remove", "v"}).front() ==
          "no command \"remove\": did you mean paths remove or exports remove? (see --help)");
    CHECK(written({"xyzzyx"}).front().find("expected list, status") != std::string::npos);
    CHECK(written({"st"}).front() == "\"st\" may be status, stats (see --help)");
    CHECK(written({"paths", "disconnet", "s", "p"}).front() ==
          "no command \"disconnet\": did you mean disconnect? (see rnbdctl paths --help)");
    CHECK(written({"exports", "foo", "bar", "baz"}).front() ==
          "no command \"foo\": expected add, remove, resize, evict, or one name with nothing "
          "behind it (see rnbdctl exports --help)");
    CHECK(written({"--control", "s.ctl", "status"}).front() ==
          "unknown option \"--control\" (see --help)");
    CHECK(written({"--timeout=5", "s.ctl"}).front().find("no command \"s.ctl\"") == 0);
    CHECK(written({"--json", "s.ctl"}).front().find("no command \"s.ctl\"") == 0);
    CHECK(written({"exports", "re", "v", "w"}).front().find("remove, resize") != std::string::npos);
}

TEST_CASE("rnbdctl: help of a command is its --help") {
    CHECK(written({"help"}) == Words{"--help"});
    CHECK(written({"help", "help"}) == Words{"--help"});
    CHECK(written({"help", "help", "exports"}) == Words{"exports", "--help"});
    CHECK(written({"help", "exp"}).front().find("may be explain, exports") != std::string::npos);
    CHECK(written({"help", "exports", "res"}) == Words{"exports", "res", "--help"});
    CHECK(written({"help", "exports", "resize"}) == Words{"exports", "resize", "--help"});
    CHECK(written({"--socket", "/s", "--json", "help", "exports", "resize"}) ==
          Words{"--socket", "/s", "--json", "exports", "resize", "--help"});
    CHECK(written({"list", "help"}) != Words{"list", "--help"});
}

TEST_CASE("rnbdctl: as many rows as the screen has lines for") {
    // Two lines of heads, one for what is left out, one for the cursor.
    CHECK(rows_for_each(24, 1) == 20);
    CHECK(rows_for_each(24, 2) == 8);
    for (const std::size_t small : {0u, 1u, 4u, 5u}) CHECK(rows_for_each(small, 2) == 1);
    const auto items = [](int first, int second) {
        return json{{"items",
                     {{{"kind", "device"}, {"name", "a"}, {"reads", first}},
                      {{"kind", "device"}, {"name", "b"}, {"reads", second}}}}};
    };
    const json all = rates(items(0, 0), items(1, 2), 1, RateOrder::busiest_first);
    CHECK(all["items"].size() == 2);
    CHECK_FALSE(all.contains("left_out"));
    CHECK_FALSE(rates_view(all).ends_with("more\n"));
    const json one = rates(items(0, 0), items(1, 2), 1, RateOrder::busiest_first, 1);
    CHECK(one["items"].size() == 1);
    CHECK(one["items"][0]["name"] == "b");
    CHECK(rates_view(one).ends_with("and 1 more\n"));
}

TEST_CASE("rnbdctl: completion goes by the tree") {
    CHECK(completed({"ex"}) == Words{"explain", "exports"});
    CHECK(completed({"exports", "e"}) == Words{"evict"});
    CHECK(completed({"policy", "s", "min-"}) == Words{"min-inflight", "min-latency"});
    CHECK(completed({"ho"}) == Words{"hold"});
    CHECK(completed({"hold", "--o"}) == Words{"--off"});
    CHECK(completed({"exports", "resize", "v", "--s"}) ==
          Words{"--save", "--server", "--shrink", "--socket"});
    CHECK(completed({"exports", "add", "--io", "d"}) == Words{"direct"});
    CHECK(completed({"map", "v", ""}) == Words{"from"});
    CHECK(completed({"unmap", ""}).empty());
    CHECK(completion_script("bash").find("complete ") != std::string::npos);
    CHECK(completion_script("zsh").starts_with("#compdef rnbdctl"));
    CHECK(completion_script("fish").empty());
}

TEST_CASE("rnbdctl: rates are differences per second, the busiest first if wanted") {
    const auto document = [](std::uint64_t a, std::uint64_t b) {
        return json{{"daemon", "d"},
                    {"items",
                     {{{"kind", "device"}, {"name", "a"}, {"reads", a}},
                      {{"kind", "device"}, {"name", "b"}, {"reads", b}}}}};
    };
    const json rate = rates(document(10, 10), document(20, 110), 2, RateOrder::busiest_first);
    CHECK(rate["items"][0] == json{{"kind", "device"}, {"name", "b"}, {"reads", 50}});
    CHECK(rate["items"][1]["reads"] == 5);
    CHECK(rate["since_s"] == 2.0);
    // Another one of the same name, and one that was not there.
    CHECK(rates(document(10, 10), document(3, 10), 1, RateOrder::as_given)["items"].size() == 1);
    CHECK(rates(json{{"items", json::array()}}, document(1, 1), 1, RateOrder::as_given)["items"]
              .empty());
}

TEST_CASE("rnbdctl: states have a colour only when it is wanted") {
    CHECK(coloured_state("ready") == "ready");
    use_colour(Colour::on);
    CHECK(coloured_state("ready") == "\x1b[32mready\x1b[0m");
    CHECK(coloured_state("waiting (no file)") == "\x1b[33mwaiting (no file)\x1b[0m");
    CHECK(coloured_state("-") == "-");
    use_colour(Colour::off);
}
