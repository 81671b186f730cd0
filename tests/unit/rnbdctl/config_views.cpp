#include "rnbdctl/config_views.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace rnbd;
using nlohmann::json;

namespace {

json document(const char* state, const json& objects = json::array(),
              const json& errors = json::array()) {
    return {{"daemon", "rnbd-server"}, {"file", "/etc/rnbd/server.yaml"},
            {"state", state},          {"confirm_left_s", nullptr},
            {"errors", errors},        {"objects", objects}};
}

json object(const char* name, const char* change) {
    return {{"object", "export"},
            {"name", name},
            {"change", change},
            {"keys", json::array()},
            {"restart_keys", json::array()},
            {"drift", ""},
            {"conflict", ""},
            {"failure", ""}};
}

}  // namespace

TEST_CASE("config view: what is as it was is only counted") {
    CHECK(config_view(document("same", {object("a", "unchanged"), object("b", "unchanged")})) ==
          "rnbd-server: /etc/rnbd/server.yaml: the daemon is as it says\n"
          "  2 objects are unchanged\n");
    CHECK(config_view(document("good")) == "rnbd-server: /etc/rnbd/server.yaml: good\n");
}

TEST_CASE("config view: each change says what, and why not") {
    json changed = object("a", "changed");
    changed["keys"] = {"size", "allow"};
    changed["restart_keys"] = {"x"};
    changed["drift"] = "changed";
    json drift = object("b", "unchanged");
    drift["drift"] = "made";
    json removed = object("c", "removed");
    removed["conflict"] = "it is open";
    json added = object("d", "added");
    added["failure"] = "no room";
    CHECK(config_view(document("differs", {changed, drift, removed, added})) ==
          "rnbd-server: /etc/rnbd/server.yaml: the daemon is not as it says\n"
          "  OBJECT  NAME  CHANGE     WHAT\n"
          "  export  a     changed    size, allow; needs a restart: x; changed by rnbdctl\n"
          "  export  b     unchanged  made by rnbdctl, in no file\n"
          "  export  c     removed    it is open\n"
          "  export  d     added      failed: no room\n");
    CHECK(config_view(document("differs", json::array({drift}))) ==
          "rnbd-server: /etc/rnbd/server.yaml: the daemon is as it says, but for what rnbdctl did "
          "without --save\n"
          "  OBJECT  NAME  CHANGE     WHAT\n"
          "  export  b     unchanged  made by rnbdctl, in no file\n");
}

TEST_CASE("config view: errors have their places; a change that waits says until when") {
    const json errors{{{"file", "s.yaml"},
                       {"line", 3},
                       {"column", 5},
                       {"key", "exports[0].io"},
                       {"text", "found x"}},
                      {{"file", "s.d"}, {"line", 0}, {"column", 0}, {"key", ""}, {"text", "no"}}};
    CHECK(config_view(document("refused", json::array(), errors)) ==
          "rnbd-server: /etc/rnbd/server.yaml: refused; nothing is changed\n"
          "  s.yaml:3:5: exports[0].io: found x\n"
          "  s.d: no\n");
    CHECK(config_look_view(document("refused", json::array(), errors))
              .starts_with("rnbd-server: /etc/rnbd/server.yaml: the configuration has errors\n"));
    json warned = document("good");
    warned["warnings"] = {
        {{"file", "s.d/a.yml"}, {"line", 0}, {"column", 0}, {"key", ""}, {"text", "not read"}}};
    CHECK(config_view(warned) ==
          "rnbd-server: /etc/rnbd/server.yaml: good\n"
          "  warning: s.d/a.yml: not read\n");
    json waiting = document("applied");
    waiting["confirm_left_s"] = 59.5;
    CHECK(config_view(waiting).find("unless rnbdctl config confirm comes") != std::string::npos);
}

TEST_CASE("config view: another daemon's document is no reason to fail") {
    for (const json& odd : {json(), json(1), json::object(), document("news"),
                            json{{"objects", {1, {{"name", 2}}}}, {"errors", {"x"}}}}) {
        CHECK(!config_view(odd).empty());
        CHECK(config_exit(odd) == CtlExit::ok);
    }
}

TEST_CASE("config view: the exit code says whether it is done") {
    CHECK(config_exit(document("applied")) == CtlExit::ok);
    CHECK(config_exit(document("differs")) == CtlExit::ok);
    CHECK(config_exit(document("incomplete")) == CtlExit::failed);
    CHECK(config_exit(document("refused", json::array(), {{{"text", "x"}}})) == CtlExit::failed);
    CHECK(config_exit(document("refused", {object("c", "removed")})) == CtlExit::conflict);
}
