#include "rnbd-client/config_diff.h"

#include <catch2/catch.hpp>

using namespace rnbd;
using Kind = ConfigChange::Kind;
using Keys = std::vector<std::string>;

namespace {

struct Parts {
    std::string paths = "{tcp: 10.0.0.1:1}";
    std::string session;  // further keys
    std::string device = "volume: v, access: rw, nbd: unix:/d";
    std::string more;
};

ClientConfig parsed(const Parts& parts) {
    const auto config = ClientConfig::parse(
        "sessions: [{name: s, paths: [" + parts.paths + "]" + parts.session +
            "}]\ndevices: [{name: d, session: s, " + parts.device + "}]\n" + parts.more,
        "c.yaml");
    REQUIRE(config);
    return *config;
}

std::vector<ConfigChange> differences(const ClientConfig& running, const ClientConfig& before,
                                      const ClientConfig& wanted) {
    auto changes = client_config_diff(running, before, wanted);
    std::erase_if(changes, [](const ConfigChange& change) {
        return change.kind == Kind::unchanged && change.drift.empty();
    });
    return changes;
}

ConfigChange one(const std::vector<ConfigChange>& changes) {
    REQUIRE(changes.size() == 1);
    return changes.front();
}

ConfigChange difference(const Parts& before, const Parts& wanted) {
    return one(differences(parsed(before), parsed(before), parsed(wanted)));
}

}  // namespace

TEST_CASE("client config diff: the same is unchanged, object by object") {
    const auto changes = client_config_diff(parsed({}), parsed({}), parsed({}));
    REQUIRE(changes.size() == 2);
    CHECK(changes[0] == ConfigChange{.object = "session", .name = "s"});
    CHECK(changes[1] == ConfigChange{.object = "device", .name = "d"});
}

TEST_CASE("client config diff: what a session can change while it runs, and what it cannot") {
    const auto change =
        difference({}, {.session = ", policy: round-robin, hold_time: 1h, fail_fast_time: 1min, "
                                   "max_reconnect_attempts: 7, request_deadline: 3s"});
    CHECK(change.kind == Kind::changed);
    CHECK(change.keys == Keys{"policy", "hold_time", "fail_fast_time", "max_reconnect_attempts",
                              "request_deadline"});
    CHECK(change.restart_keys.empty());
    const auto both = difference({}, {.session = ", policy: round-robin, connections: 3"});
    CHECK(both.kind == Kind::changed);
    CHECK(both.restart_keys == Keys{"connections"});
    for (const auto& [text, keys] :
         {std::pair{", reconnect_delay: {max: 2s}", Keys{"reconnect_delay"}},
          {", heartbeat: {timeout: 6s}", Keys{"heartbeat", "probe_timeout"}},
          {", probe_timeout: 1s", Keys{"probe_timeout"}},
          {", connect_timeout: 1s", Keys{"connect_timeout"}},
          {", data_checksum: false", Keys{"data_checksum"}}}) {
        const auto fixed = difference({}, {.session = text});
        CHECK(fixed.kind == Kind::restart);
        CHECK(fixed.restart_keys == keys);
    }
}

TEST_CASE("client config diff: paths of a session that stays are objects") {
    const auto added = difference({}, {.paths = "{tcp: 10.0.0.1:1}, {tcp: 10.0.0.9@10.0.0.1:1}"});
    CHECK(added.object == "path");
    CHECK(added.name == "s 10.0.0.9@10.0.0.1:1");
    CHECK(added.kind == Kind::added);
    CHECK(session_and_label(added.name) ==
          std::pair<std::string, std::string>("s", "10.0.0.9@10.0.0.1:1"));
    const auto priority = difference({}, {.paths = "{tcp: 10.0.0.1:1, priority: standby}"});
    CHECK(priority.kind == Kind::changed);
    CHECK(priority.keys == Keys{"priority"});
    const auto moved = differences(parsed({}), parsed({}), parsed({.paths = "{tcp: 10.0.0.2:1}"}));
    REQUIRE(moved.size() == 2);
    CHECK(moved[0].kind == Kind::added);
    CHECK(moved[1].kind == Kind::removed);
    // Added by rnbdctl: no file named it.
    const auto drift = one(differences(parsed({.paths = "{tcp: 10.0.0.1:1}, {tcp: 10.0.0.2:1}"}),
                                       parsed({}), parsed({})));
    CHECK(drift.kind == Kind::unchanged);
    CHECK(drift.drift == "made");
}

TEST_CASE("client config diff: a device that changes is another one of the same name") {
    for (const auto& [text, key] :
         {std::pair{"volume: w, access: rw, nbd: unix:/d", "volume"},
          {"volume: v, access: ro, nbd: unix:/d", "access"},
          {"volume: v, access: rw, nbd: unix:/e", "nbd"},
          {"volume: v, access: rw, nbd: unix:/d, device: auto", "device"},
          {"volume: v, access: rw, nbd: unix:/d, device_connections: 2", "device_connections"}}) {
        const auto change = difference({}, {.device = text});
        CHECK(change.kind == Kind::replaced);
        CHECK(change.keys == Keys{key});
    }
}

TEST_CASE("client config diff: sessions and devices come and go, with what is on them") {
    const ClientConfig none;
    const auto come = differences(none, none, parsed({}));
    REQUIRE(come.size() == 2);
    CHECK((come[0].kind == Kind::added && come[1].kind == Kind::added));
    const auto go = differences(parsed({}), parsed({}), none);
    REQUIRE(go.size() == 2);
    CHECK((go[0].kind == Kind::removed && go[1].kind == Kind::removed));
    const auto drift = differences(parsed({}), none, none);
    REQUIRE(drift.size() == 2);
    CHECK((drift[0].drift == "made" && drift[1].drift == "made"));
}

TEST_CASE("client config diff: settings") {
    CHECK(difference({}, {.more = "control: /run/other\n"}).kind == Kind::restart);
    CHECK(difference({}, {.more = "log: {level: error}\n"}).kind == Kind::changed);
}
