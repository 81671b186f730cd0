// What rnbdctl says of the words that it was given.
#include <catch2/catch.hpp>

#include "daemon/control/protocol.h"
#include "tests/unit/rnbdctl/world.h"

using namespace rnbd;
using namespace rnbd::testing;

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
