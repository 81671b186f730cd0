// What rnbdctl asks daemons, and what it makes of their answers.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "daemon/control/protocol.h"
#include "tests/unit/rnbdctl/world.h"

using namespace rnbd;
using namespace rnbd::testing;

TEST_CASE("rnbdctl: no daemon is exit 3 with advice") {
    World world;
    const auto both = world.run({"status"});
    CHECK(both.exit == number(CtlExit::unreachable));
    CHECK(both.err.find("neither daemon is here") != std::string::npos);
    CHECK(both.err.find("is it running?") != std::string::npos);
    CHECK(world.run({"--client", "list"}).exit == number(CtlExit::unreachable));
    const auto as_json = json::parse(world.run({"--json", "list"}).out);
    CHECK(as_json["ok"] == false);
    CHECK(as_json["error"]["code"] == "unreachable");
}

TEST_CASE("rnbdctl: what is no socket is said to be none") {
    World world;
    const std::string file = world.sockets.client;
    std::ofstream(file) << "text";
    const auto ran = world.run({"--socket", file.c_str(), "list"});
    CHECK(ran.exit == number(CtlExit::unreachable));
    CHECK(has(ran.err, (file + ": found a file, expected the socket of a daemon\n").c_str()));
    CHECK_FALSE(has(ran.err, "is it running"));
    CHECK(has(world.run({"--socket", "/tmp", "list"}).err, "/tmp: found a folder, expected"));
}

TEST_CASE("rnbdctl: a daemon that gives no answer is exit 7, with its word in JSON") {
    World world;
    const auto listening = world.listen_only();
    const auto text = world.run({"--client", "--timeout", "1", "list"});
    CHECK(text.exit == number(CtlExit::timed_out));
    CHECK(has(text.err, (world.sockets.client + ": no answer in time\n").c_str()));
    CHECK(has(text.err, "--timeout waits longer"));
    const auto silent = world.run({"--client", "--timeout", "1", "--json", "list"});
    CHECK(silent.exit == number(CtlExit::timed_out));
    CHECK(json::parse(silent.out)["error"]["code"] == "timed_out");
    ::close(listening);
}

TEST_CASE("rnbdctl: a daemon that has no room for one more connection is said to be there") {
    World world;
    const auto listening = world.listen_only();
    std::thread daemon([&] {
        const int fd = ::accept(listening, nullptr, nullptr);
        // What it was sent and has not read makes it a reset.
        char c = 0;
        while (::recv(fd, &c, 1, MSG_PEEK) != 1) continue;
        ::close(fd);
    });
    const auto ran = world.run({"--client", "list"});
    daemon.join();
    CHECK(ran.exit == number(CtlExit::unreachable));
    CHECK(has(ran.err, ": the daemon closed the connection before it answered\n"));
    CHECK(has(ran.err, "as many control connections as it takes"));
    CHECK_FALSE(has(ran.err, "is it running?"));
    ::close(listening);
}

TEST_CASE("rnbdctl: what one of two daemons has, the other need not have") {
    World world;
    const auto answer = [](const char* rest) {
        return std::string(R"({"schema":"rnbd-control","version":1,)") + rest + "}";
    };
    const std::string none =
        answer(R"("ok":false,"error":{"code":"not_found","message":"no change waits"})");
    const std::string confirmed =
        answer(R"("ok":true,"result":{"daemon":"rnbd-client","state":"confirmed"})");
    const Ran one = world.run_answered_by_both(none, confirmed, {"config", "confirm"});
    CHECK(one.exit == number(CtlExit::ok));
    CHECK(one.err.empty());
    CHECK(one.out == world.run_answered(confirmed, {"--client", "config", "confirm"}).out);
    const Ran neither = world.run_answered_by_both(none, none, {"config", "confirm"});
    CHECK(neither.exit == number(CtlExit::not_found));
    // Of what both have it is an error.
    const Ran list = world.run_answered_by_both(none, confirmed, {"list"});
    CHECK(list.exit == number(CtlExit::not_found));
}

TEST_CASE("rnbdctl: what is wrong with an answer is told apart in JSON") {
    World world;
    const auto code_of = [&](const std::string& answer) {
        return json::parse(
            world.run_answered(answer, {"--client", "--json", "list"}).out)["error"]["code"];
    };
    CHECK(code_of("hello") == "nonsense");
    CHECK(code_of(R"({"schema":"rnbd-control","version":2})") == "nonsense");
    for (const char* const wrong : {"", R"(,"result":5)", R"(,"result":null)", R"(,"result":[])"}) {
        const auto answer =
            fmt::format(R"({{"schema":"rnbd-control","version":1,"ok":true{}}})", wrong);
        const auto ran = world.run_answered(answer, {"--client", "status"});
        CHECK(ran.exit == number(CtlExit::nonsense));
        CHECK(ran.out.empty());
        CHECK(has(ran.err, "the answer has no proper result"));
    }
    CHECK(code_of(R"({"schema":"rnbd-control","version":1,"ok":false,"error":{"code":"new"}})") ==
          "failed");
}

TEST_CASE("rnbdctl: an answer that cannot be written is no success") {
    const char* const words[] = {"rnbdctl", "--help"};
    std::ostream full(nullptr);
    std::ostringstream err;
    CHECK(run_rnbdctl(2, words, full, err, {}) == number(CtlExit::failed));
    CHECK(err.str().find("cannot be written") != std::string::npos);
    // What went wrong before is still the worse.
    const char* const wrong[] = {"rnbdctl", "nonsense"};
    CHECK(run_rnbdctl(2, wrong, full, err, {}) == number(CtlExit::usage));
}

TEST_CASE("rnbdctl: completion offers what the daemon has by that name") {
    World world;
    const auto answer =
        emit_control_result({{"sessions", {{{"name", "storage"}}, {{"name", "spare"}}}},
                             {"devices", {{{"name", "sda"}}}}});
    const auto offered = [&](const std::vector<const char*>& words) {
        std::vector<const char*> all{"complete"};
        all.insert(all.end(), words.begin(), words.end());
        return world.run_answered(answer, all).out;
    };
    CHECK(offered({"paths", "s"}) == "spare\nstorage\n");
    CHECK(offered({"discover", "s"}) == "spare\nstorage\n");
    CHECK(offered({"map", "vol", "from", "s"}) == "spare\nstorage\n");
    CHECK(offered({"unmap", ""}) == "sda\n");
    CHECK(world.request["command"] == "status");
}

TEST_CASE("rnbdctl: text and JSON answers") {
    World world;
    const auto answer =
        emit_control_result({{"daemon", "rnbd-client"}, {"devices", json::array()}});
    const auto text = world.run_answered(answer, {"list"});
    CHECK(text.exit == 0);
    CHECK(text.out == "no devices\n");
    CHECK(world.request == json{{"command", "list"}, {"arguments", json::object()}});
    const auto as_json = world.run_answered(answer, {"--client", "list", "--json"});
    CHECK(as_json.out == json::parse(answer).dump() + "\n");
    const std::string socket = world.sockets.client;
    CHECK(world.run_answered(answer, {"--socket", socket.c_str(), "status"}).exit == 0);
}

TEST_CASE("rnbdctl: map says whether the device can be used, or why not") {
    World world;
    const auto says = [&](json more) {
        more.update({{"device", "d"}, {"nbd", {"unix:/d.sock"}}});
        return world.run_answered(emit_control_result(more), {"map", "v", "--session", "s"}).out;
    };
    CHECK(says({{"state", "open"}, {"reason", ""}, {"kernel", {{"path", "/dev/nbd3"}}}}) ==
          "d is served at /dev/nbd3, unix:/d.sock\n");
    CHECK(says({{"state", "opening"}, {"reason", "no such export"}, {"kernel", nullptr}}) ==
          "d is served at unix:/d.sock; not open yet: no such export\n");
    CHECK(says({{"state", "open"}, {"reason", "/dev/nbd3 is busy"}, {"kernel", nullptr}}) ==
          "d is served at unix:/d.sock; but: /dev/nbd3 is busy\n");
}

TEST_CASE("rnbdctl: map and unmap say everything to the daemon") {
    World world;
    const auto mapped = emit_control_result({{"device", "d"}, {"nbd", {"unix:/d.sock"}}});
    const auto map =
        world.run_answered(mapped, {"map", "v", "--session", "s", "--name", "d", "--ro", "--nbd",
                                    "unix:/d.sock", "--path", "1.2.3.4:5", "--path", "1.2.3.5:5"});
    CHECK(map.exit == 0);
    CHECK(map.out == "d is served at unix:/d.sock\n");
    CHECK(world.request["arguments"] ==
          json::parse(R"({"volume":"v","session":"s","device":"d","access":"ro",
                          "nbd":["unix:/d.sock"],"paths":[{"tcp":"1.2.3.4:5"},{"tcp":"1.2.3.5:5"}]})"));
    world.run_answered(mapped, {"map", "v", "--session", "s"});
    CHECK(world.request["arguments"] ==
          json::parse(R"({"volume":"v","session":"s","device":"v","access":"rw"})"));
    // A new session is called as the machine.
    world.run_answered(mapped, {"map", "v", "--path", "1.2.3.4:5"});
    const json by_path = world.request["arguments"]["session"];
    CHECK(by_path != "");
    world.run_answered(mapped, {"map", "v", "from", "1.2.3.4:5"});
    CHECK(world.request["arguments"]["session"] == by_path);
    world.run_answered(mapped, {"map", "v", "from", "s", "--path", "1.2.3.4:5"});
    CHECK(world.request["arguments"]["session"] == "s");
    CHECK(world.run({"map", "v", "from", "1.2.3.4"}).err ==
          "rnbdctl: map: found \"1.2.3.4\", expected a session's name or HOST:PORT\n");
    const auto unmap =
        world.run_answered(emit_control_result({{"device", "d"}}), {"unmap", "d", "--force"});
    CHECK(unmap.out == "d is no longer served\n");
    CHECK(world.request["arguments"] == json{{"device", "d"}, {"force", true}});
}

TEST_CASE("rnbdctl: paths, their operations, policy and explain") {
    World world;
    const auto answer = emit_control_result(json::object());
    const auto asked = [&](const std::vector<const char*>& words) {
        CHECK(world.run_answered(answer, words).exit == 0);
        return world.request;
    };
    CHECK(asked({"paths"}) == json{{"command", "paths"}, {"arguments", json::object()}});
    CHECK(asked({"paths", "s"})["arguments"] == json{{"session", "s"}});
    CHECK(asked({"paths", "add", "s", "1.2.3.4:5", "--priority", "standby"}) ==
          json::parse(R"({"command":"path_add","arguments":
              {"session":"s","path":"1.2.3.4:5","priority":"standby","timeout_s":10}})"));
    CHECK(asked({"paths", "remove", "s", "p", "--timeout", "3"}) ==
          json::parse(
              R"({"command":"path_remove","arguments":{"session":"s","path":"p","timeout_s":3}})"));
    CHECK(asked({"paths", "remove", "s", "p", "--force"})["arguments"]["force"] == true);
    CHECK(asked({"paths", "reconnect", "s", "p"})["command"] == "path_reconnect");
    CHECK(asked({"paths", "disconnect", "s", "p"})["command"] == "path_disconnect");
    CHECK(asked({"policy", "s"})["arguments"] == json{{"session", "s"}});
    CHECK(asked({"policy", "s", "min-latency"})["arguments"] ==
          json{{"session", "s"}, {"policy", "min-latency"}});
    CHECK(asked({"hold"}) == json{{"command", "hold"}, {"arguments", json::object()}});
    CHECK(asked({"hold", "2.5"})["arguments"] == json{{"limit_s", 2.5}});
    CHECK(asked({"hold", "--off"})["arguments"] == json{{"off", true}});
    // Times have units, as everywhere; without one they are seconds.
    CHECK(asked({"hold", "500ms"})["arguments"] == json{{"limit_s", 0.5}});
    CHECK(asked({"hold", "1d"})["arguments"] == json{{"limit_s", 86400}});
    CHECK(asked({"paths", "remove", "s", "p", "--timeout", "2min"})["arguments"]["timeout_s"] ==
          120);
    CHECK(asked({"--socket", world.sockets.client.c_str(), "exports", "evict", "e", "s", "--for",
                 "5min"})["arguments"]["out_s"] == 300);
    CHECK(asked({"config", "apply", "--client", "--confirm-within",
                 "90"})["arguments"]["confirm_within_s"] == 90);
    for (const char* const wrong_time :
         {"25h", "86401", "nan", "inf", "-1", "1 s", "5m", "s", ""}) {
        const auto refused = world.run({"hold", wrong_time});
        CHECK(refused.exit == number(CtlExit::usage));
    }
    const auto too_short = world.run({"stats", "watch", "--interval", "49ms"});
    CHECK(too_short.exit == number(CtlExit::usage));
    CHECK(has(too_short.err, "from 0.05 to 86400"));
    CHECK(world.run({"--timeout", "0", "list"}).exit == number(CtlExit::usage));
    CHECK(world.run({"config", "apply", "--confirm-within", "0s"}).exit == number(CtlExit::usage));
    CHECK(world.run({"hold", "--off", "3"}).exit == number(CtlExit::usage));
    CHECK(asked({"explain", "vol1", "--json"}) ==
          json{{"command", "explain"}, {"arguments", {{"device", "vol1"}}}});
    CHECK(world.run({"paths", "add", "s"}).exit == number(CtlExit::usage));
    CHECK(world.run({"explain"}).exit == number(CtlExit::usage));
    const auto wrong = world.run({"--server", "paths"});
    CHECK(wrong.exit == number(CtlExit::usage));
    CHECK(has(wrong.err, "paths is a command of rnbd-client"));
    CHECK(has(world.run({"--server", "status", "--remote"}).err,
              "status --remote is a command of rnbd-client"));
}

TEST_CASE("rnbdctl: a drain that somebody else ends is not waited for") {
    World world;
    const std::string socket = world.sockets.client;
    const auto answer = [](bool draining) {
        return emit_control_result({{"daemon", "rnbd-server"},
                                    {"draining", draining},
                                    {"done", false},
                                    {"sessions", 1},
                                    {"opens", 1},
                                    {"in_flight", 0}});
    };
    const std::vector<std::string> answers{answer(true), answer(false)};
    const auto text =
        world.run_answered_each(answers, {"--socket", socket.c_str(), "drain", "--timeout", "20"});
    CHECK(text.exit == number(CtlExit::failed));
    CHECK(text.err ==
          "draining until rnbdctl drain --off: 1 session, 1 export open, 0 requests in flight\n"
          "rnbdctl: not drained: somebody has let sessions in again\n"
          "rnbdctl: rnbdctl drain starts it again\n");
    CHECK(world.request["arguments"] == json::object());
    const auto as_json =
        world.run_answered_each(answers, {"--socket", socket.c_str(), "drain", "--json"});
    CHECK(as_json.exit == number(CtlExit::failed));
    CHECK(json::parse(as_json.out)["error"]["code"] == "failed");
}

TEST_CASE("rnbdctl: a daemon that is followed may go and come back") {
    World world;
    const auto answer = [](const char* daemon, int reads, double since_s) {
        return emit_control_result(
            {{"daemon", daemon},
             {"since_s", since_s},
             {"items", {{{"kind", "device"}, {"name", "vol1"}, {"reads", reads}}}}});
    };
    const std::string server = answer("rnbd-server", 1, 1000);
    const auto shown = [](const std::string& lines, const char* daemon) {
        std::istringstream all(lines);
        int count = 0;
        for (std::string line; std::getline(all, line);)
            count += json::parse(line)["result"]["daemon"] == daemon ? 1 : 0;
        return count;
    };
    for (const auto& words : {std::vector<const char*>{"top"}, {"stats", "watch"}}) {
        std::vector<const char*> arguments = words;
        for (const char* const word : {"--json", "--interval", "0.05", "--rounds", "6"})
            arguments.push_back(word);
        const auto ran =
            world.run_followed(server,
                               {answer("rnbd-client", 9, 1000), "", std::nullopt,
                                answer("rnbd-client", 1, 1), answer("rnbd-client", 2, 2),
                                // Another process, that has counted more by now.
                                answer("rnbd-client", 1000, 0.001), answer("rnbd-client", 1001, 1)},
                               arguments);
        INFO(ran.out << ran.err);
        CHECK(ran.exit == 0);
        CHECK(ran.err.empty());
        CHECK(shown(ran.out, "rnbd-server") == 6);
        CHECK(shown(ran.out, "rnbd-client") == 2);
    }
    // One that was asked for by name is there or not.
    const auto named = world.run_followed(std::nullopt, {answer("rnbd-client", 1, 1000), ""},
                                          {"--client", "top", "--interval", "0.05"});
    CHECK(named.exit == number(CtlExit::unreachable));
    const auto neither =
        world.run_followed(server, {std::nullopt}, {"stats", "watch", "--interval", "0.05"});
    CHECK(neither.exit == number(CtlExit::unreachable));
    CHECK(has(neither.err, "rnbdctl: neither daemon is here: "));
}

TEST_CASE("rnbdctl: each error has its exit code and advice") {
    World world;
    const auto exit_of = [&](ControlError code) {
        const auto ran =
            world.run_answered(emit_control_failure({code, "because"}), {"unmap", "d"});
        CHECK(ran.err.starts_with("rnbdctl: because\nrnbdctl: "));
        return ran.exit;
    };
    CHECK(exit_of(ControlError::failed) == 1);
    CHECK(exit_of(ControlError::bad_arguments) == 2);
    CHECK(exit_of(ControlError::not_found) == 4);
    CHECK(exit_of(ControlError::busy) == 5);
    CHECK(exit_of(ControlError::exists) == 5);
    CHECK(exit_of(ControlError::denied) == 6);
    CHECK(exit_of(ControlError::timed_out) == 7);
    CHECK(world.run_answered("what?", {"unmap", "d"}).exit == 8);
    // What the storage says is all that there is to say.
    const auto resize = world.run_answered(
        emit_control_failure({ControlError::failed, "e: because"}),
        {"--socket", world.sockets.client.c_str(), "exports", "resize", "e", "1MiB"});
    CHECK(resize.err == "rnbdctl: e: because\n");
}
