#include "rnbd-server/config_diff.h"

#include <catch2/catch.hpp>

using namespace rnbd;
using Kind = ConfigChange::Kind;
using Keys = std::vector<std::string>;

namespace {

ServerConfig parsed(const std::string& exports, const std::string& more = "") {
    const auto config = ServerConfig::parse(
        "listen: [{tcp: 10.0.0.1:1235}]\nexports:\n" + exports + more, "s.yaml");
    REQUIRE(config);
    return *config;
}

// What is not as it was.
std::vector<ConfigChange> differences(const ServerConfig& running, const ServerConfig& before,
                                      const ServerConfig& wanted) {
    auto changes = server_config_diff(running, before, wanted);
    std::erase_if(changes, [](const ConfigChange& change) {
        return change.kind == Kind::unchanged && change.drift.empty();
    });
    return changes;
}

std::vector<ConfigChange> differences(const ServerConfig& before, const ServerConfig& wanted) {
    return differences(before, before, wanted);
}

ConfigChange one(const std::vector<ConfigChange>& changes) {
    REQUIRE(changes.size() == 1);
    return changes.front();
}

const std::string a = "  - {name: a, path: /a, size: 1MiB, allow: [{session: s, access: rw}]}\n";

}  // namespace

TEST_CASE("server config diff: the same is unchanged, object by object") {
    const auto changes = server_config_diff(parsed(a), parsed(a), parsed(a));
    REQUIRE(changes.size() == 2);
    CHECK(changes[0] == ConfigChange{.object = "listener", .name = "tcp 10.0.0.1:1235"});
    CHECK(changes[1] == ConfigChange{.object = "export", .name = "a"});
}

TEST_CASE("server config diff: exports come, go and change") {
    const auto none = parsed("");
    CHECK(one(differences(none, parsed(a))).kind == Kind::added);
    CHECK(one(differences(parsed(a), none)).kind == Kind::removed);
    const auto changed = one(differences(
        parsed(a),
        parsed("  - {name: a, path: /a, size: 2MiB, allow: [{session: s, access: ro}]}\n")));
    CHECK(changed.kind == Kind::changed);
    CHECK(changed.keys == Keys{"size", "allow"});
}

TEST_CASE("server config diff: another medium is another export under the same name") {
    const std::string allow = ", allow: [{session: s, access: rw}]}\n";
    for (const auto& [text, key] :
         {std::pair{"  - {name: a, path: /b, size: 1MiB", "path"},
          {"  - {name: a, path: /a, size: 1MiB, io: direct, block_size: 512", "io"},
          {"  - {name: a, path: /a, size: 1MiB, block_size: 4096", "block_size"},
          {"  - {name: a, storage: {kind: memory, size: 1MiB}", "storage"}}) {
        const auto change = one(differences(parsed(a), parsed(text + allow)));
        CHECK(change.kind == Kind::replaced);
        CHECK(change.keys == Keys{key});
    }
    const auto change = one(differences(
        parsed(a),
        parsed("  - {name: a, path: /a, size: 1MiB, read_only: true, allow: [{session: s, access: "
               "ro}]}\n")));
    CHECK(change.kind == Kind::replaced);
    CHECK(change.keys == Keys{"allow", "read_only"});
}

TEST_CASE("server config diff: what rnbdctl did is drift, and stays if no file names it") {
    const auto none = parsed("");
    const auto made = one(differences(parsed(a), none, none));
    CHECK(made.kind == Kind::unchanged);
    CHECK(made.drift == "made");
    const auto removed = one(differences(none, parsed(a), parsed(a)));
    CHECK(removed.kind == Kind::added);
    CHECK(removed.drift == "removed");
    const auto other = parsed("  - {name: a, path: /a, size: 1MiB}\n");
    const auto changed = one(differences(other, parsed(a), parsed(a)));
    CHECK(changed.kind == Kind::changed);
    CHECK(changed.drift == "changed");
    // A file names it now as it is: nothing is left to do.
    CHECK(differences(parsed(a), none, parsed(a)).empty());
}

TEST_CASE("server config diff: a size that rnbdctl changed is not changed back") {
    auto resized = parsed(a);
    resized.exports.front().storage.size_bytes = 8u << 20;
    CHECK(differences(resized, parsed(a), parsed(a)).empty());
    const auto wanted =
        parsed("  - {name: a, path: /a, size: 4MiB, allow: [{session: s, access: rw}]}\n");
    CHECK(one(differences(resized, parsed(a), wanted)).keys == Keys{"size"});
    // The file says by now what rnbdctl did.
    auto same = parsed(a);
    same.exports.front().storage.size_bytes = 4u << 20;
    CHECK(differences(same, parsed(a), wanted).empty());
}

TEST_CASE("server config diff: listeners") {
    const auto with = [](const std::string& listen) {
        const auto config = ServerConfig::parse("listen: [" + listen + "]\n", "s.yaml");
        REQUIRE(config);
        return *config;
    };
    const auto changes = differences(with("{tcp: 10.0.0.1:1}"), with("{tcp: 10.0.0.1:2}"));
    REQUIRE(changes.size() == 2);
    CHECK(changes[0].name == "tcp 10.0.0.1:2");
    CHECK(changes[0].kind == Kind::added);
    CHECK(changes[1].kind == Kind::removed);
    const std::string kernel = "{rdma: 10.0.0.1:1, kernel: {allow: [{session: k}]}}";
    const std::string more = "{rdma: 10.0.0.1:1, kernel: {allow: [{session: k}, {session: l}]}}";
    CHECK(one(differences(with(kernel), with(more))).kind == Kind::changed);
    CHECK(one(differences(with("{rdma: 10.0.0.1:1}"), with(kernel))).kind == Kind::replaced);
    const std::string any = "{tcp: 10.0.0.1:0}";
    CHECK(differences(with(any + ", " + any), with(any + ", " + any)).empty());
    CHECK(one(differences(with(any), with(any + ", " + any))).name == "tcp 10.0.0.1:0 (2)");
}

TEST_CASE("server config diff: what holds since the start waits for a restart") {
    for (const auto& [text, key] : {std::pair{"queue_depth: 64\n", "queue_depth"},
                                    {"max_io_size: 64KiB\n", "max_io_size"},
                                    {"always_invalidate: false\n", "always_invalidate"},
                                    {"data_checksum: false\n", "data_checksum"},
                                    {"prompt_sends: false\n", "prompt_sends"},
                                    {"batch_scheduling: false\n", "batch_scheduling"},
                                    {"prompt_storage: false\n", "prompt_storage"},
                                    {"polled_io: true\n", "polled_io"},
                                    {"zero_copy_sends: true\n", "zero_copy_sends"},
                                    {"registered_io: false\n", "registered_io"},
                                    {"read_portions: false\n", "read_portions"},
                                    {"heartbeat: {timeout: 9s}\n", "heartbeat"},
                                    // The default, stated: of kernel clients, too.
                                    {"heartbeat: {timeout: 5s}\n", "heartbeat"},
                                    {"control: /run/other\n", "control"}}) {
        const auto change = one(differences(parsed(a), parsed(a, text)));
        CHECK(change.kind == Kind::restart);
        CHECK(change.object == "setting");
        CHECK(change.restart_keys == Keys{key});
    }
    CHECK(one(differences(parsed(a), parsed(a, "log: {level: debug}\n"))).kind == Kind::changed);
}
