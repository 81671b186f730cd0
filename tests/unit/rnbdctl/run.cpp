#include "rnbdctl/run.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "daemon/control/protocol.h"
#include "rnbdctl/exit_codes.h"

using namespace rnbd;
using nlohmann::json;

namespace {

struct Ran {
    int exit = -1;
    std::string out, err;
};

// A daemon that answers each connection's one request with the next prepared line.
class World {
  public:
    World() {
        char name[] = "/tmp/rnbd-ctl-XXXXXX";
        REQUIRE(::mkdtemp(name) != nullptr);
        directory_ = name;
        sockets.server = directory_ + "/server.ctl";
        sockets.client = directory_ + "/client.ctl";
    }
    ~World() {
        ::unlink(sockets.client.c_str());
        ::rmdir(directory_.c_str());
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    Ran run(std::vector<const char*> arguments) {
        arguments.insert(arguments.begin(), "rnbdctl");
        std::ostringstream out, err;
        Ran ran;
        ran.exit =
            run_rnbdctl(static_cast<int>(arguments.size()), arguments.data(), out, err, sockets);
        ran.out = out.str();
        ran.err = err.str();
        return ran;
    }

    // A client daemon that lets everybody connect and says nothing.
    int listen_only() { return listen_at(sockets.client); }
    static int listen_at(const std::string& path) {
        const int listening = ::socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, path.c_str());
        REQUIRE(::bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
        REQUIRE(::listen(listening, 8) == 0);
        return listening;
    }

    // As run(), with a client daemon that answers with this line; its request is kept.
    Ran run_answered(const std::string& answer, const std::vector<const char*>& arguments) {
        return run_answered_each({answer}, arguments);
    }

    // With one that is asked as often as there are answers.
    Ran run_answered_each(const std::vector<std::string>& answers,
                          const std::vector<const char*>& arguments) {
        const int listening = listen_only();
        std::thread daemon([&] {
            for (const std::string& answer : answers) answer_one(listening, answer);
        });
        Ran ran = run(arguments);
        daemon.join();
        ::close(listening);
        ::unlink(sockets.client.c_str());
        return ran;
    }

    // With both daemons, which are asked in turn. The server answers `server` to each question
    // (null: it is asked none), the client the next of these: "" ends before it has answered; null:
    // it is not there.
    Ran run_followed(const std::optional<std::string>& server,
                     const std::vector<std::optional<std::string>>& clients,
                     const std::vector<const char*>& arguments) {
        const int servers = listen_at(sockets.server);
        int listening = listen_only();
        std::thread daemons([&] {
            for (const auto& client : clients) {
                // The client is asked after the server: until then it can come and go.
                const int asked = server ? ::accept(servers, nullptr, nullptr) : -1;
                if (client && listening < 0) {
                    ::unlink(sockets.client.c_str());
                    listening = listen_only();
                } else if (!client && listening >= 0) {
                    ::close(std::exchange(listening, -1));  // its socket's file stays
                }
                if (server) answer_on(asked, *server);
                if (client && client->empty())
                    ::close(::accept(listening, nullptr, nullptr));
                else if (client)
                    answer_one(listening, *client);
            }
            ::close(servers);
            ::unlink(sockets.server.c_str());
            if (listening >= 0) ::close(listening);
        });
        Ran ran = run(arguments);
        daemons.join();
        ::unlink(sockets.client.c_str());
        return ran;
    }

    // With both daemons, each of which is asked once.
    Ran run_answered_by_both(const std::string& server, const std::string& client,
                             const std::vector<const char*>& arguments) {
        const int servers = listen_at(sockets.server), clients = listen_only();
        std::thread daemons([&] {
            answer_one(servers, server);
            answer_one(clients, client);
        });
        Ran ran = run(arguments);
        daemons.join();
        ::close(servers);
        ::close(clients);
        ::unlink(sockets.server.c_str());
        ::unlink(sockets.client.c_str());
        return ran;
    }

    DefaultSockets sockets;
    json request;

  private:
    void answer_one(int listening, const std::string& answer) {
        answer_on(::accept(listening, nullptr, nullptr), answer);
    }
    void answer_on(int fd, const std::string& answer) {
        std::string line;
        char c = 0;
        while (::recv(fd, &c, 1, 0) == 1 && c != '\n') line += c;
        request = json::parse(line, nullptr, false);
        const std::string text = answer + "\n";
        static_cast<void>(::send(fd, text.data(), text.size(), MSG_NOSIGNAL));
        ::close(fd);
    }

    std::string directory_;
};

bool has(const std::string& text, const char* part) {
    INFO(text);
    return text.find(part) != std::string::npos;
}

int number(CtlExit exit) { return static_cast<int>(exit); }

}  // namespace

TEST_CASE("rnbdctl: usage errors, help with the table of exit codes, version") {
    World world;
    CHECK(world.run({}).exit == number(CtlExit::usage));
    CHECK(world.run({"dance"}).exit == number(CtlExit::usage));
    CHECK(world.run({"--server", "--client", "list"}).exit == number(CtlExit::usage));
    CHECK(world.run({"map", "v"}).exit == number(CtlExit::usage));
    CHECK(world.run({"map", "v", "--session", "s", "--server"}).exit == number(CtlExit::usage));
    CHECK(world.run({"--version"}).exit == 0);
    const auto help = world.run({"--help"});
    CHECK(help.exit == 0);
    CHECK(help.out.find("3  the daemon cannot be reached") != std::string::npos);
}

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

TEST_CASE("rnbdctl: an empty word stands for nothing, not for what no word stands for") {
    World world;
    const auto refused = [&](const std::vector<const char*>& words) {
        const auto ran = world.run(words);
        CHECK(ran.exit == number(CtlExit::usage));
        return ran.err;
    };
    CHECK(has(refused({"--socket", "", "list"}), "--socket: found nothing, expected FILE"));
    CHECK(has(refused({"unmap", ""}), "device: found nothing, expected DEVICE"));
    CHECK(has(refused({"paths", ""}), "session: found nothing"));
    CHECK(has(refused({"exports", "resize", "e", ""}), "size: found nothing"));
    CHECK(has(refused({"map", "v", "from", "s", "--name", ""}), "--name: found nothing"));
    CHECK(has(refused({"exports", "add", "e", "/f", "--allow", ""}), "--allow: found nothing"));
    CHECK(has(refused({"map", "v", "from", "s", "--name=", "--ro"}), "--name: found nothing"));
    CHECK(has(refused({"--socket=", "list"}), "--socket: found nothing, expected FILE"));
    // A file may be written empty.
    CHECK(world.run({"--client", "set", "a", ""}).exit == number(CtlExit::unreachable));
}

TEST_CASE("rnbdctl: a word that is no UTF-8 is not taken for another one") {
    World world;
    const auto refused = [&](const std::vector<const char*>& words) {
        const auto ran = world.run(words);
        CHECK(ran.exit == number(CtlExit::usage));
        return ran.out + ran.err;
    };
    CHECK(refused({"exports", "add", "e", "/srv/m\xfc.img"}) ==
          "rnbdctl: found the byte 0xfc behind \"/srv/m\", expected UTF-8 text\n");
    CHECK(has(refused({"--json", "map", "v", "from", "s", "--nbd", "unix:/\xff"}),
              R"("message":"found the byte 0xff behind \"unix:/\", expected UTF-8 text")"));
    CHECK(has(refused({"exports", "resize", "e\xc3", "1GiB"}), "the byte 0xc3"));
    // Others, and the socket of a daemon, which no daemon is told.
    CHECK(world.run({"exports", "add", "e", "/srv/m\xc3\xbc.img"}).exit ==
          number(CtlExit::unreachable));
    CHECK(world.run({"--socket", "/\xff", "list"}).exit == number(CtlExit::unreachable));
}

TEST_CASE("rnbdctl: every complaint about words begins with the program's name") {
    World world;
    CHECK(world.run({}).err == "rnbdctl: A command is required (see --help)\n");
    CHECK(world.run({"unmap"}).err == "rnbdctl: device is required (see rnbdctl unmap --help)\n");
    CHECK(has(world.run({"hold", "soon"}).err, "rnbdctl: time: found \"soon\""));
    // Which word is missing may follow from which option is unknown.
    CHECK(world.run({"unmap", "--frob"}).err ==
          "rnbdctl: unknown option \"--frob\" (see rnbdctl unmap --help)\n");
    CHECK(world.run({"unmap", "d", "e"}).err ==
          "rnbdctl: unexpected word \"e\" (see rnbdctl unmap --help)\n");
    CHECK(has(world.run({"exports", "resize"}).err, "(see rnbdctl exports resize --help)\n"));
    CHECK(has(world.run({"exports", "resze", "v", "1"}).err,
              "did you mean resize? (see rnbdctl exports --help)\n"));
}

TEST_CASE("rnbdctl: a complaint about words is JSON where answers are") {
    World world;
    const auto complaint = [&](const std::vector<const char*>& words) {
        const auto result = world.run(words);
        CHECK(result.exit == number(CtlExit::usage));
        CHECK(result.err.empty());
        const json document = json::parse(result.out);
        CHECK(document["schema"] == "rnbd-control");
        CHECK(document["version"] == 1);
        CHECK(document["ok"] == false);
        CHECK(document["error"]["code"] == "bad_arguments");
        return document["error"]["message"].get<std::string>();
    };
    CHECK(complaint({"--json", "unmap"}) == "device is required (see rnbdctl unmap --help)");
    CHECK(complaint({"unmap", "--json", "d", "--frob"}) ==
          "unknown option \"--frob\" (see rnbdctl unmap --help)");
    CHECK(has(complaint({"--json", "statsu"}), "did you mean status?"));
    CHECK(has(complaint({"--json", "hold", "soon"}), "time: found \"soon\""));
}

TEST_CASE("rnbdctl: advice is about what was asked for") {
    World world;
    const auto advice = [&](const char* code, std::vector<const char*> words) {
        words.insert(words.begin(), "--client");
        return world
            .run_answered(std::string(R"({"schema":"rnbd-control","version":1,"ok":false,)") +
                              R"("error":{"code":")" + code + R"(","message":"no"}})",
                          words)
            .err;
    };
    CHECK(advice("not_found", {"unmap", "d"}) ==
          "rnbdctl: no\nrnbdctl: rnbdctl status shows what there is\n");
    CHECK(advice("not_found", {"get", "a"}) ==
          "rnbdctl: no\nrnbdctl: rnbdctl tree shows what there is\n");
    CHECK(advice("not_found", {"config", "confirm"}) == "rnbdctl: no\n");
    CHECK(advice("busy", {"config", "apply"}) == "rnbdctl: no\n");
    CHECK(advice("busy", {"paths", "remove", "s", "p"}) == "rnbdctl: no\n");
    CHECK(advice("busy", {"unmap", "d"}) ==
          "rnbdctl: no\nrnbdctl: rnbdctl status shows what is in use\n");
    CHECK(advice("not_found", {"log", "info", "a"}) == "rnbdctl: no\n");
}

TEST_CASE("rnbdctl: what a daemon does not take is called as on the command line") {
    World world;
    const auto said = [&](const char* message, const std::vector<const char*>& words) {
        return world.run_answered(emit_control_failure({ControlError::bad_arguments, message}),
                                  words);
    };
    CHECK(has(said("nbd[0]: found \"unix:rel\"; device: found nothing",
                   {"map", "v", "from", "s", "--name", "d", "--nbd", "unix:rel"})
                  .err,
              "rnbdctl: --nbd: found \"unix:rel\"; --name: found nothing\n"));
    CHECK(has(said("paths[0].tcp: found \"h:x\"", {"map", "v", "from", "h:x"}).err,
              "rnbdctl: SERVER: found \"h:x\"\n"));
    const std::string three =
        said("volume: found \"..\"; device: found \"..\"; access: no; volume: found \"..\"",
             {"map", "..", "from", "s"})
            .err;
    CHECK(has(three, "rnbdctl: EXPORT: found \"..\"; access: no\n"));
    CHECK(has(said("paths[1].tcp: found \"h:x\"", {"map", "v", "from", "h:1", "--path", "h:x"}).err,
              "rnbdctl: --path: found \"h:x\"\n"));
    CHECK(has(said("device: expected a name", {"unmap", "d"}).err,
              "rnbdctl: device: expected a name\n"));
}

TEST_CASE("rnbdctl: a command of the other daemon is said to be that") {
    World world;
    const auto asked = [&](const char* daemon, const std::vector<const char*>& words) {
        const std::string socket = world.sockets.client;
        std::vector<const char*> all{"--socket", socket.c_str()};
        all.insert(all.end(), words.begin(), words.end());
        const auto ran = world.run_answered_each(
            {emit_control_failure({ControlError::unknown_command, "commands are: a, b"}),
             emit_control_result({{"daemon", daemon}, {"version", "1"}})},
            all);
        CHECK(ran.exit == number(CtlExit::usage));
        return ran.err;
    };
    CHECK(asked("rnbd-client", {"drain"}) ==
          "rnbdctl: rnbd-client (at " + world.sockets.client +
              ") has no drain: that is a command of rnbd-server\n"
              "rnbdctl: leave --socket out, or name the socket of rnbd-server\n");
    CHECK(has(asked("rnbd-server", {"paths", "add", "s", "p"}),
              ") has no paths add: that is a command of rnbd-client\n"));
    // An older one of the right kind.
    CHECK(has(asked("rnbd-client", {"explain", "d"}), "rnbdctl: commands are: a, b\n"));
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
