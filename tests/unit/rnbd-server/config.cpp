#include "rnbd-server/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "daemon/config/files.h"

using namespace rnbd;
using namespace std::chrono_literals;
using Kind = StorageOptions::Kind;
using Io = StorageOptions::Io;
using Use = StorageOptions::Use;

namespace {

std::string errors_of(const std::string& text) {
    const auto config = ServerConfig::parse(text, "s.yaml");
    if (config) return "";
    std::string all;
    for (const auto& error : config.error()) all += to_string(error) + "\n";
    return all;
}

// A configuration with one export that has these lines.
std::string with_export(const std::string& lines) {
    return "listen:\n  - tcp: 127.0.0.1:1235\nexports:\n  - name: v\n" + lines;
}

bool complains(const std::string& text, const std::string& part) {
    const auto errors = errors_of(text);
    INFO(errors);
    return errors.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("server config: an NBD server behind an export") {
    const auto config = ServerConfig::parse(
        "listen: [{tcp: 127.0.0.1:1235}]\n"
        "exports:\n"
        "  - {name: a, storage: {kind: nbd, uri: 'nbd+unix:///x?socket=/run/x'}}\n",
        "s.yaml");
    REQUIRE(config);
    CHECK(config->exports[0].storage.kind == StorageOptions::Kind::nbd);
    CHECK(config->exports[0].storage.uri == "nbd+unix:///x?socket=/run/x");
    const auto wrong = ServerConfig::parse(
        "listen: [{tcp: 127.0.0.1:1235}]\n"
        "exports:\n"
        "  - {name: a, storage: {kind: nbd, uri: 'http://x'}}\n"
        "  - {name: b, storage: {kind: nbd, uri: 'nbd://127.0.0.1/'}}\n"
        "  - {name: c, storage: {kind: nbd, uri: 'nbd://127.0.0.1/'}}\n",
        "s.yaml");
    REQUIRE(!wrong);
    REQUIRE(wrong.error().size() == 2);
    CHECK(to_string(wrong.error()[0]).find("expected a URI that begins with nbd://") !=
          std::string::npos);
    CHECK(to_string(wrong.error()[1]).find("which export \"b\" has already") != std::string::npos);

    const auto with_uri = [](const std::string& uri) {
        return "listen: [{tcp: 127.0.0.1:1235}]\n"
               "exports: [{name: a, storage: {kind: nbd, uri: '" +
               uri + "'}}]\n";
    };
    for (const char* uri :
         {"nbd+unix:///", "nbds+unix:///x", "nbd+unix:///x?socket=", "nbd+unix:///x?no-socket=/s",
          "nbd+unix:///x#?socket=/s", "nbd:///?socket=/s", "nbd:/h"}) {
        INFO(uri);
        CHECK(complains(with_uri(uri), "exports[0].storage.uri: found \"" + std::string(uri)));
        CHECK(complains(with_uri(uri), "and has ?socket=PATH"));
    }
    for (const char* uri :
         {"nbd://h", "nbds://h/x?tls-type=x509", "nbd+unix://?socket=/s",
          "nbds+unix:///x?tls-type=x509&socket=/s", "nbd+unix:///?a=b;socket=/s"}) {
        INFO(uri);
        CHECK(ServerConfig::parse(with_uri(uri), "s.yaml"));
    }
}

TEST_CASE("server config: the example is right, and says the defaults") {
    const auto config = load_config<ServerConfig>(RNBD_EXAMPLE, PipeEnd::awaited);
    if (!config)
        for (const auto& error : config.error()) UNSCOPED_INFO(to_string(error));
    REQUIRE(config);
    REQUIRE(config->exports.size() == 4);
    const auto& vol1 = config->exports[0];
    CHECK(vol1.name == "vol1");
    CHECK(vol1.storage.path == "/var/lib/rnbd/vol1.img");
    CHECK(vol1.storage.size_bytes == 1ull << 30);
    CHECK(vol1.storage.io == Io::direct);
    CHECK(vol1.storage.logical_block_bytes == 4096);
    CHECK(vol1.storage.use == Use::read_write);
    REQUIRE(vol1.allow.size() == 2);
    CHECK(vol1.allow[0].access == AccessMode::read_write);
    CHECK(vol1.allow[0].address->contains("127.0.0.1"));
    CHECK_FALSE(vol1.allow[1].address);
    CHECK(config->exports[1].storage.use == Use::read_only);
    CHECK(config->exports[2].storage.kind == Kind::memory);
    CHECK(config->exports[3].storage.kind == Kind::null);
    CHECK(config->exports[3].storage.size_bytes == 1ull << 40);

    const auto least = ServerConfig::parse("listen: [{tcp: 127.0.0.1:1235}]", "s.yaml");
    REQUIRE(least);
    CHECK(least->queue_depth == config->queue_depth);
    CHECK(least->max_io_bytes == config->max_io_bytes);
    CHECK(least->chunk_bytes() == 132u << 10);
    CHECK(least->control == config->control);
    CHECK(least->always_invalidate == config->always_invalidate);
    CHECK(least->data_checksum == config->data_checksum);
    CHECK(least->registered_io == config->registered_io);
    CHECK(least->prompt_sends == config->prompt_sends);
    CHECK(least->batch_scheduling == config->batch_scheduling);
    CHECK(least->prompt_storage == config->prompt_storage);
    CHECK(least->polled_io == config->polled_io);
    CHECK(least->zero_copy_sends == config->zero_copy_sends);
    CHECK(least->read_portions == config->read_portions);
    CHECK(least->heartbeat_interval == config->heartbeat_interval);
    CHECK(least->heartbeat_timeout == config->heartbeat_timeout);
    CHECK(least->log_level == config->log_level);
}

TEST_CASE("server config: kernel clients have their own time, unless one is stated for all") {
    const auto timeouts = [](const std::string& heartbeat) {
        const auto config =
            ServerConfig::parse("listen: [{tcp: 127.0.0.1:1235}]\n" + heartbeat, "s.yaml");
        REQUIRE(config);
        return std::pair{config->heartbeat_timeout, config->kernel_heartbeat_timeout};
    };
    using Both = std::pair<rtrs::Duration, rtrs::Duration>;
    CHECK(timeouts("") == Both(5s, 30s));
    CHECK(timeouts("heartbeat: {interval: 1s}\n") == Both(5s, 30s));
    CHECK(timeouts("heartbeat: {timeout: 5s}\n") == Both(5s, 5s));
    CHECK(timeouts("heartbeat: {timeout: 40s}\n") == Both(40s, 40s));
}

TEST_CASE("server config: defaults of an export") {
    const auto config = ServerConfig::parse(with_export("    path: /a\n"), "s.yaml");
    REQUIRE(config);
    const auto& found = config->exports.at(0);
    CHECK(found.storage.io == Io::buffered);
    CHECK(found.storage.logical_block_bytes == 512);
    CHECK_FALSE(found.storage.size_bytes);
    CHECK(found.allow.empty());
    const auto direct =
        ServerConfig::parse(with_export("    path: /a\n    io: direct\n"), "s.yaml");
    CHECK(direct->exports.at(0).storage.logical_block_bytes == 4096);
}

TEST_CASE("server config: one export alone") {
    const auto config = ServerConfig::parse_export(
        R"({"name": "v", "path": "/a", "allow": [{"session": "h", "access": "ro"}]})", "export");
    REQUIRE(config);
    CHECK(config->name == "v");
    CHECK(config->allow.size() == 1);
    for (const auto& [text, error] :
         {std::pair{R"({"name": "v"})", "path: found no such key"},
          std::pair{R"({"name": "v", "path": "/a", "allow": [{"session": "h", "access": "x"}]})",
                    "allow[0].access: found \"x\""},
          std::pair{"[]", "found a list, expected a mapping"},
          std::pair{"{", "found a mapping in braces that is not closed"}}) {
        const auto wrong = ServerConfig::parse_export(text, "export");
        REQUIRE_FALSE(wrong);
        CAPTURE(to_string(wrong.error().front()), error);
        CHECK(to_string(wrong.error().front()).find(error) != std::string::npos);
    }
}

TEST_CASE("server config: a size that another one overrules is told") {
    const std::string exports =
        "listen: [{tcp: \"127.0.0.1:1\"}]\n"
        "exports: [{name: a, path: /a, size: 2MiB, allow: [{session: h, access: rw}]}]\n";
    const auto other =
        ServerConfig::parse(exports + "amend: [{export: a, size: 1MiB}]\n", "s.yaml");
    REQUIRE(other);
    CHECK(other->exports[0].storage.size_bytes == 1u << 20);
    REQUIRE(other->warnings.size() == 1);
    CHECK(
        to_string(other->warnings[0]) ==
        "s.yaml:3:27: amend[0].size: found 1048576 bytes, which count, not the 2097152 that \"a\" "
        "has at s.yaml:2: take one of both out");
    const auto same = ServerConfig::parse(exports + "amend: [{export: a, size: 2MiB}]\n", "s.yaml");
    REQUIRE(same);
    CHECK(same->warnings.empty());
}

TEST_CASE("server config: as many rules, exports and amendments as fit") {
    constexpr int count = 25000;
    std::string text = "    path: /a\n    allow:\n";
    for (int i = 0; i < count; ++i)
        text += fmt::format("      - {{session: h, address: fd00::{:x}, access: rw}}\n", i);
    const auto ruled = ServerConfig::parse(with_export(text), "s.yaml");
    REQUIRE(ruled);
    CHECK(ruled->exports[0].allow.size() == count);
    CHECK(errors_of(with_export(text + "      - {session: h, address: fd00::7, access: ro}\n")) ==
          fmt::format("s.yaml:{}:19: exports[0].allow[{}].session: found \"h\" a second time, "
                      "expected one rule per session and address\n",
                      count + 7, count));
    // Without an address it is another rule, once.
    const std::string anywhere = "      - {session: h, access: ro}\n";
    CHECK(ServerConfig::parse(with_export(text + anywhere), "s.yaml"));
    CHECK(complains(with_export(text + anywhere + anywhere), "a second time"));

    constexpr int exports = 15000;
    text = "listen: [{tcp: 127.0.0.1:1235}]\nexports:\n";
    for (int i = 0; i < exports; ++i)
        text += fmt::format("  - {{name: v{0}, path: /v{0}, size: 1MiB}}\n", i);
    text += "amend:\n";
    for (int i = exports; i-- > 0;) text += fmt::format("  - {{export: v{}, size: 2MiB}}\n", i);
    const auto amended = ServerConfig::parse(text, "s.yaml");
    REQUIRE(amended);
    CHECK(std::ranges::all_of(amended->exports, [](const ServerConfig::Export& one) {
        return one.storage.size_bytes == 2u << 20;
    }));
}

TEST_CASE("server config: one mistake is one error") {
    const std::string twice =
        "    path: /a\n    allow: [{session: h, access: rw}, {session: h, access: ro}]\n";
    CHECK(errors_of(with_export(twice)) ==
          "s.yaml:6:49: exports[0].allow[1].session: found \"h\" a second time, expected one rule "
          "per session and address\n");
    for (const char* storage : {"{kind: file, path: /a}", "{kind: memroy, size: 1MiB}",
                                "{kind: ndb, uri: 'nbd://h'}", "{kind: file}"}) {
        const auto errors = errors_of(with_export("    storage: " + std::string(storage) + "\n"));
        CHECK(errors.starts_with("s.yaml:5:21: exports[0].storage.kind: found "));
        CHECK(std::ranges::count(errors, '\n') == 1);
    }
    // One whose name is wrong has none.
    CHECK(complains(
        "listen: [{tcp: 127.0.0.1:1235}]\nexports: [{name: a..b, path: /a}, {name: b, path: /a}]\n",
        "found \"/a\" which another export has already"));
}

TEST_CASE("server config: listen is required") {
    CHECK(errors_of("") == "s.yaml:1:1: listen: found no such key, expected a list (- ...)\n");
    CHECK(complains("listen: []", "expected at least 1"));
    CHECK(complains("listen:\n  - tcp: 1.2.3.4:5\n  - tcp: 1.2.3.4:5\n",
                    "s.yaml:3:10: listen[1].tcp: found \"1.2.3.4:5\" a second time"));
    CHECK(complains("listen:\n  - {}\n", "listen[0].tcp: found no such key, expected tcp or rdma"));
    CHECK(complains("listen:\n  - {tcp: 1.2.3.4:5, rdma: 1.2.3.4:6}\n",
                    "listen[0].rdma: found both tcp and rdma"));
}

TEST_CASE("server config: no listener is within another, and metrics are apart from the control") {
    const auto listening = [](const std::string& one, const std::string& other) {
        return "listen: [{tcp: '" + one + "'}, {tcp: '" + other + "'}]\n";
    };
    CHECK(complains(listening("0.0.0.0:1235", "127.0.0.1:1235"),
                    "listen[1].tcp: found \"127.0.0.1:1235\" beside \"0.0.0.0:1235\""));
    CHECK(complains(listening("192.0.2.1:1235", "0.0.0.0:1235"), "beside \"192.0.2.1:1235\""));
    // It takes IPv4, too.
    CHECK(complains(listening("[::]:1235", "0.0.0.0:1235"), "beside \"[::]:1235\""));
    CHECK(complains(listening("[::1]:1235", "[::]:1235"), "beside \"[::1]:1235\""));
    CHECK(errors_of(listening("0.0.0.0:1235", "127.0.0.1:1236")).empty());
    CHECK(errors_of(listening("0.0.0.0:1235", "[::1]:1235")).empty());
    CHECK(errors_of(listening("0.0.0.0:0", "127.0.0.1:0")).empty());
    const std::string head = "listen: [{tcp: 127.0.0.1:0}]\nmetrics: {listen: 'unix:/run/x'}\n";
    CHECK(complains(head + "control: /run/x\n", "metrics: found \"/run/x\" which is the control"));
    CHECK(errors_of(head + "control: /run/y\n").empty());
    for (const char* const address : {"127.0.0.1:1235", "0.0.0.0:1235"}) {
        CHECK(complains(
            std::string("listen: [{tcp: '") + address + "'}]\nmetrics: {listen: 127.0.0.1:1235}\n",
            "metrics: found \"127.0.0.1:1235\" beside the listener at \""));
    }
    CHECK(errors_of("listen: [{tcp: '192.0.2.1:1235'}]\nmetrics: {listen: 127.0.0.1:1235}\n")
              .empty());
    CHECK(errors_of("listen: [{tcp: '127.0.0.1:0'}]\nmetrics: {listen: 127.0.0.1:0}\n").empty());
}

TEST_CASE("server config: rdma listeners, also for kernel clients") {
    const auto config = ServerConfig::parse(
        "listen:\n"
        "  - rdma: 1.2.3.4:5\n"
        "  - tcp: 1.2.3.4:5\n"
        "  - rdma: 1.2.3.4:1234\n"
        "    kernel:\n"
        "      allow:\n"
        "        - {session: host-k, address: 1.2.3.0/24}\n"
        "        - session: any\n"
        "      search_path: /%SESSNAME%/disks/\n"
        "      devices: [{path: /dev//sda, export: vol1}]\n"
        "always_invalidate: if-possible\n",
        "s.yaml");
    REQUIRE(config);
    CHECK(config->always_invalidate == AlwaysInvalidate::if_possible);
    CHECK(config->listen[0].fabric == ConfigFabric::rdma);
    CHECK_FALSE(config->listen[0].kernel);
    CHECK(config->listen[1].fabric == ConfigFabric::tcp);
    const auto& kernel = config->listen[2].kernel;
    REQUIRE(kernel);
    CHECK(kernel->allows("host-k", "1.2.3.99"));
    CHECK_FALSE(kernel->allows("host-k", "1.2.4.1"));
    CHECK_FALSE(kernel->allows("host-l", "1.2.3.99"));
    CHECK(kernel->allows("any", "9.9.9.9"));
    CHECK(kernel->export_for("host-k", "dev/sda") == "vol1");
    CHECK(kernel->export_for("host-k", "//dev/sda") == "vol1");
    CHECK(kernel->export_for("host-k", "sda") == "host-k/disks/sda");
    CHECK(KernelListener{}.export_for("host-k", "/vol2") == "vol2");
}

TEST_CASE("server config: rdma listeners that are wrong") {
    const auto with_kernel = [](const std::string& text) {
        return "listen:\n  - rdma: 1.2.3.4:5\n    kernel: " + text + "\n";
    };
    CHECK(complains("listen:\n  - rdma: 0.0.0.0:5\n", "expected an address of one RDMA device"));
    CHECK(complains("listen:\n  - rdma: '[::]:5'\n", "expected an address of one RDMA device"));
    CHECK(complains("listen:\n  - rdma: 1.2.3.4:5\n  - rdma: 1.2.3.4:5\n",
                    "listen[1].rdma: found \"1.2.3.4:5\" a second time"));
    CHECK(complains("listen:\n  - tcp: 1.2.3.4:5\n    kernel: {allow: [{session: a}]}\n",
                    "found kernel beside tcp"));
    CHECK(complains(with_kernel("{}"), "kernel.allow: found no such key"));
    CHECK(complains(with_kernel("{allow: []}"), "expected at least 1"));
    CHECK(complains(with_kernel("{allow: [{session: a}], search_path: ../x}"), "\"..\""));
    CHECK(complains(with_kernel("{allow: [{session: a}], devices: [{path: a, export: b}, {path: "
                                "/a, export: c}]}"),
                    "found \"a\" a second time"));
}

TEST_CASE("server config: an export has one backing that makes sense") {
    CHECK(complains(with_export("    io: direct\n"), "expected path or storage"));
    CHECK(complains(with_export("    path: /a\n    storage: {kind: memory, size: 1MiB}\n"),
                    "one of them"));
    CHECK(complains(with_export("    storage: {kind: memory}\n"),
                    "exports[0].storage.size: found no such key"));
    CHECK(complains(with_export("    storage: {kind: null, size: 1MiB}\n"), "'null' (in quotes)"));
    CHECK(complains(with_export("    storage: {kind: 'null', size: 1MiB}\n    io: direct\n"),
                    "only with path"));
    CHECK(complains(with_export("    path: a\n"), "absolute path"));
    CHECK(complains(with_export("    path: /a\n    block_size: 1024\n"), "expected 512 or 4096"));
    CHECK(
        complains(with_export("    path: /a\n    size: 5000\n"), "multiple of the block size 512"));
    CHECK(
        complains(with_export("    path: /a\n    io: drect\n"), "nearest valid value \"direct\""));
}

TEST_CASE("server config: a storage may be a file as well") {
    const auto config = ServerConfig::parse(
        with_export("    storage: {kind: path, path: /a, size: 8KiB, io: direct}\n"), "s.yaml");
    REQUIRE(config);
    const StorageOptions& storage = config->exports.at(0).storage;
    CHECK(storage.kind == Kind::path);
    CHECK(storage.path == "/a");
    CHECK(storage.size_bytes == 8192);
    CHECK(storage.io == Io::direct);
    CHECK(storage.logical_block_bytes == 4096);
    CHECK_FALSE(storage.delay);
    CHECK(complains(with_export("    storage: {kind: path, path: /a}\n  - name: w\n    path: /a\n"),
                    "which export \"v\" has already"));
    CHECK(complains(with_export("    path: /a\n  - name: w\n    storage: {kind: path, path: /a}\n"),
                    "exports[1].storage: found \"/a\" which export \"v\" has already"));
    CHECK(complains(with_export("    storage: {kind: path, path: /a, size: 5000}\n"),
                    "exports[0].storage: found 5000 bytes, expected a multiple"));
}

TEST_CASE("server config: a storage that is late on purpose") {
    using namespace std::chrono_literals;
    const auto config =
        ServerConfig::parse(with_export("    storage: {kind: delay, of: {kind: path, path: /a}}\n"
                                        "  - name: w\n"
                                        "    storage:\n"
                                        "      kind: delay\n"
                                        "      of: {kind: memory, size: 1MiB}\n"
                                        "      read: 1ms\n"
                                        "      write: 2s\n"
                                        "      flush: 3min\n"
                                        "      every: 100\n"
                                        "      by: 10s\n"
                                        "      when: after\n"
                                        "      gate: /run/gate\n"
                                        "      gate_operations: all\n"
                                        "      gate_count: 1\n"),
                            "s.yaml");
    if (!config)
        for (const auto& error : config.error()) UNSCOPED_INFO(to_string(error));
    REQUIRE(config);
    const StorageOptions& plain = config->exports.at(0).storage;
    CHECK(plain.kind == Kind::path);
    CHECK(plain.path == "/a");
    REQUIRE(plain.delay);
    CHECK(plain.delay->read == 0s);
    CHECK(plain.delay->every == 0);
    CHECK(plain.delay->when == DelayOptions::When::before);
    CHECK(plain.delay->gate.empty());
    const StorageOptions& full = config->exports.at(1).storage;
    CHECK(full.kind == Kind::memory);
    CHECK(full.size_bytes == 1u << 20);
    REQUIRE(full.delay);
    CHECK(full.delay->read == 1ms);
    CHECK(full.delay->write == 2s);
    CHECK(full.delay->flush == 3min);
    CHECK(full.delay->every == 100);
    CHECK(full.delay->by == 10s);
    CHECK(full.delay->when == DelayOptions::When::after);
    CHECK(full.delay->gate == "/run/gate");
    CHECK(full.delay->gate_operations == DelayOptions::Gate::all);
    CHECK(full.delay->gate_count == 1);
}

TEST_CASE("server config: delays that make no sense") {
    const auto with_delay = [](const std::string& rest) {
        return with_export("    storage: {kind: delay" + rest + "}\n");
    };
    const std::string of = ", of: {kind: memory, size: 1MiB}";
    CHECK(complains(with_delay(""), "exports[0].storage.of: found no such key"));
    CHECK(complains(with_delay(", of: {kind: delay, of: {kind: memory, size: 1MiB}}"),
                    "storage.of.kind: found \"delay\", expected"));
    CHECK(complains(with_delay(", of: {kind: memory}"), "storage.of.size: found no such key"));
    CHECK(complains(with_delay(", of: {kind: path}"), "storage.of.path: found no such key"));
    CHECK(complains(with_delay(of + ", size: 1MiB"), "storage.size: found an unknown key"));
    CHECK(complains(with_delay(of + ", every: 3"), "found every without by"));
    CHECK(complains(with_delay(of + ", by: 3s"), "found by without every"));
    CHECK(complains(with_delay(of + ", every: 0, by: 3s"), "an integer from 1"));
    CHECK(complains(with_delay(of + ", when: during"), "expected before or after"));
    CHECK(complains(with_delay(of + ", gate: here"), "absolute path"));
    CHECK(complains(with_delay(of + ", gate_count: 1"), "found gate_count without gate"));
    CHECK(complains(with_delay(of + ", gate_operations: read"), "gate_operations without gate"));
    CHECK(complains(with_delay(of + ", read: 2h"), "exports[0].storage.read"));
}

TEST_CASE("server config: names, paths and rules are there once") {
    CHECK(complains(with_export("    path: /a\n  - name: v\n    path: /b\n"),
                    "exports[1].name: found \"v\" a second time"));
    CHECK(complains(with_export("    path: /a\n  - name: w\n    path: /a\n"),
                    "which export \"v\" has already"));
    CHECK(errors_of(with_export("    path: /a\n    read_only: true\n  - name: w\n    path: /a\n    "
                                "read_only: true\n"))
              .empty());
    CHECK(complains(with_export("    path: /a\n    allow:\n      - {session: h, access: rw}\n      "
                                "- {session: h, access: ro}\n"),
                    "one rule per session"));
    CHECK(complains(with_export("    path: /a\n    allow:\n      - {session: a.b, access: rw}\n"),
                    "without space, '/', '.' and '*'"));
    CHECK(complains(
        with_export(
            "    path: /a\n    allow:\n      - {session: h, address: 10.0.0.1/8, access: rw}\n"),
        "no bits set beyond"));
}

TEST_CASE("server config: nobody writes to what is read-only") {
    CHECK(complains(
        with_export(
            "    path: /a\n    allow:\n      - {session: h, access: rw}\n    read_only: true\n"),
        "expected ro"));
}

TEST_CASE("server config: what a medium is called") {
    const std::string uuid = "6BA7B810-9dad-11d1-80b4-00c04fd430c8";
    const auto config =
        ServerConfig::parse(with_export("    path: /a\n    uuid: " + uuid + "\n"), "server.yaml");
    REQUIRE(config);
    REQUIRE(config->exports.back().storage.uuid);
    CHECK(to_text(*config->exports.back().storage.uuid) == "6ba7b810-9dad-11d1-80b4-00c04fd430c8");
    for (const char* wrong :
         {"vol1", "00000000-0000-0000-0000-000000000000", "6ba7b810-9dad-11d1-80b4-00c04fd430c",
          "6ba7b8109dad11d180b400c04fd430c8"}) {
        CHECK(complains(with_export(std::string("    path: /a\n    uuid: ") + wrong + "\n"),
                        "expected a UUID, as \"6ba7b810-"));
    }
    const auto two = [&](const std::string& second) {
        return "listen: [{tcp: 127.0.0.1:0}]\nexports:\n"
               "  - {name: a, path: /a, read_only: true, uuid: " +
               uuid +
               "}\n"
               "  - {name: b, path: " +
               second + ", read_only: true, uuid: " + uuid + "}\n";
    };
    CHECK(
        complains(two("/b"),
                  "exports[1].uuid: found \"6ba7b810-9dad-11d1-80b4-00c04fd430c8\" a second time"));
    CHECK(errors_of(two("/a")).empty());
}

TEST_CASE("server config: each key that is expected is named once") {
    CHECK(
        complains("listen: [{tcp: 127.0.0.1:0}]\n"
                  "exports:\n"
                  "  - {name: a, storage: {kind: path, path: /srv/a, size: 1000}, sixe: 3}\n",
                  "expected name, path, storage, size, io, block_size, read_only, uuid or allow,"));
}

TEST_CASE("server config: depth and size fit the wire together") {
    const std::string head = "listen: [{tcp: 127.0.0.1:0}]\n";
    CHECK(complains(head + "max_io_size: 129000\n", "nearest valid value \"128KiB\""));
    CHECK(
        complains(head + "queue_depth: 4096\n",
                  "queue_depth: found 4096 with requests of 131072 bytes, expected at most 1024"));
    CHECK(
        complains(head + "max_io_size: 1MiB\n",
                  "max_io_size: found 1048576 bytes with the default queue_depth of 512, expected "
                  "queue_depth with at most 128 beside it"));
    CHECK(errors_of(head + "max_io_size: 124KiB\nqueue_depth: 2048\n").empty());
    // The deepest queue that any size of requests allows, and what is beyond that.
    CHECK(errors_of(head + "max_io_size: 4KiB\nqueue_depth: 32768\n").empty());
    CHECK(complains(head + "max_io_size: 4KiB\nqueue_depth: 32769\n",
                    "queue_depth: found \"32769\", expected an integer from 1 to 32768"));
    const auto config = ServerConfig::parse(head + "max_io_size: 1020KiB\nqueue_depth: 128\n", "s");
    REQUIRE(config);
    CHECK(config->chunk_bytes() == 1u << 20);
    CHECK(complains(head + "heartbeat: {interval: 3s}\n",
                    "heartbeat.interval: found more than half of the timeout (5s by default)"));
    CHECK(complains(head + "heartbeat: {interval: 3s, timeout: 4s}\n",
                    "heartbeat.timeout: found less than twice the interval"));
    CHECK(complains(head + "control: /" + std::string(107, 'a') + "\n", "at most 107 bytes"));
}

TEST_CASE("server config: the same name in two files names both places") {
    const auto config = ServerConfig::parse(
        {{"s.yaml", "listen: [{tcp: 127.0.0.1:1235}]\nexports: [{name: v, path: /v}]\n"},
         {"s.d/a.yaml", "\nexports:\n  - name: v\n    path: /w\n"}});
    REQUIRE(!config);
    REQUIRE(config.error().size() == 1);
    CHECK(to_string(config.error().front()) ==
          "s.d/a.yaml:3:11: exports[0].name: found \"v\" a second time, expected each name once "
          "(first at s.yaml:2)");
}
