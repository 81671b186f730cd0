#include "rnbd-client/config.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "daemon/config/files.h"

using namespace rnbd;
using namespace std::chrono_literals;

namespace {

std::string errors_of(const std::string& text) {
    const auto config = ClientConfig::parse(text, "c.yaml");
    if (config) return "";
    std::string all;
    for (const auto& error : config.error()) all += to_string(error) + "\n";
    return all;
}

bool complains(const std::string& text, const std::string& part) {
    const auto errors = errors_of(text);
    INFO(errors);
    return errors.find(part) != std::string::npos;
}

// One session with these further lines.
std::string with_session(const std::string& lines) {
    return "sessions:\n  - name: s\n    paths: [{tcp: 127.0.0.1:1235}]\n" + lines;
}

std::string with_device(const std::string& lines) {
    return with_session("devices:\n  - name: d\n    session: s\n    volume: v\n" + lines);
}

}  // namespace

TEST_CASE("client config: metrics are apart from other sockets") {
    const std::string metrics = "metrics: {listen: 'unix:/run/x'}\n";
    CHECK(
        complains(metrics + "control: /run/x\n", "metrics: found \"/run/x\" which is the control"));
    CHECK(complains(with_device("    access: rw\n    nbd: unix:/run/x\n") + metrics,
                    "metrics: found \"unix:/run/x\" which a device has"));
    CHECK(errors_of(with_device("    access: rw\n    nbd: unix:/run/y\n") + metrics).empty());
    CHECK(complains(with_device("    access: rw\n    nbd: tcp:127.0.0.1:10809\n") +
                        "metrics: {listen: 127.0.0.1:10809}\n",
                    "metrics: found \"127.0.0.1:10809\" which a device has"));
    CHECK(errors_of(with_device("    access: rw\n    nbd: tcp:127.0.0.1:0\n") +
                    "metrics: {listen: 127.0.0.1:0}\n")
              .empty());
}

TEST_CASE("client config: the example is right, and says the defaults") {
    const auto config = load_config<ClientConfig>(RNBD_EXAMPLE, PipeEnd::awaited);
    if (!config)
        for (const auto& error : config.error()) UNSCOPED_INFO(to_string(error));
    REQUIRE(config);
    REQUIRE(config->sessions.size() == 1);
    REQUIRE(config->devices.size() == 2);
    CHECK(config->devices[0].nbd.at(0).text() == "unix:/run/rnbd/vol1.sock");
    CHECK(config->devices[1].nbd.at(1).text() == "tcp:127.0.0.1:10809");
    CHECK(config->devices[1].access == AccessMode::read_only);

    const auto least = ClientConfig::parse(with_session(""), "c.yaml");
    REQUIRE(least);
    CHECK(least->control == config->control);
    CHECK(least->log_level == config->log_level);
    const auto& session = least->sessions.at(0);
    const auto& example = config->sessions.at(0);
    CHECK(session.paths == example.paths);
    CHECK(session.hold_time == example.hold_time);
    CHECK(session.fail_fast_time == example.fail_fast_time);
    CHECK(session.request_deadline == example.request_deadline);
    CHECK(session.probe_timeout == example.probe_timeout);
    CHECK(session.connect_timeout == example.connect_timeout);
    CHECK(session.policy == example.policy);
    CHECK(session.max_reconnect_attempts == example.max_reconnect_attempts);
    CHECK(session.reconnect_delay_min == example.reconnect_delay_min);
    CHECK(session.reconnect_delay_max == example.reconnect_delay_max);
    CHECK(session.heartbeat_interval == example.heartbeat_interval);
    CHECK(session.heartbeat_timeout == example.heartbeat_timeout);
    CHECK(session.connections == example.connections);
    CHECK(session.data_checksum == example.data_checksum);
}

TEST_CASE("client config: nothing is enough, rnbdctl may map later") {
    CHECK(errors_of("").empty());
    CHECK(errors_of("control: /run/x.ctl\n").empty());
}

TEST_CASE("client config: sessions") {
    const auto config = ClientConfig::parse(
        with_session("    hold_time: 30s\n    max_reconnect_attempts: 5\n    connections: 64\n"),
        "c");
    REQUIRE(config);
    CHECK(config->sessions[0].hold_time == rtrs::Duration(30s));
    CHECK(config->sessions[0].max_reconnect_attempts == 5u);
    const auto forever = ClientConfig::parse(with_session("    max_reconnect_attempts: -1\n"), "c");
    CHECK_FALSE(forever->sessions.at(0).max_reconnect_attempts);
    CHECK(complains(with_session("    max_reconnect_attempts: -2\n"), "or forever (-1)"));
    CHECK(complains(with_session("    connections: 65\n"), "from 1 to 64"));
    CHECK(complains(with_session("    hold_time: foreve\n"), "nearest valid value \"forever\""));
    CHECK(complains(with_session("    reconnect_delay: {min: 2s}\n"), "expected at least min"));
    CHECK(complains(with_session("  - name: s\n    paths: [{tcp: 1.2.3.4:5}]\n"),
                    "sessions[1].name"));
    CHECK(complains("sessions: [{name: s, paths: []}]", "expected at least 1"));
    CHECK(complains("sessions: [{name: s, paths: [{tcp: 1.2.3.4:5}, {tcp: 1.2.3.4:5}]}]",
                    "each path once"));
    CHECK(errors_of(
              "sessions: [{name: s, paths: [{tcp: 1.2.3.4:5, source: 1.1.1.1}, {tcp: 1.2.3.4:5}]}]")
              .empty());
    CHECK(complains("sessions: [{name: s, paths: [{tcp: 1.2.3.4:5, source: '::1'}]}]",
                    "expected an IPv4 address"));
    CHECK(
        complains("sessions: [{name: s, paths: [{tcp: 1.2.3.4:0}]}]", "numeric address and port"));
}

TEST_CASE("client config: paths") {
    using Priority = rtrs::PathPriority;
    const auto config = ClientConfig::parse(
        "sessions:\n"
        "  - name: s\n"
        "    paths:\n"
        "      - tcp: 10.0.0.1:1235\n"
        "      - tcp: 10.0.0.9@10.0.0.1:1235\n"
        "        priority: standby\n"
        "      - {tcp: 10.0.0.1:1236, source: 10.0.0.9, priority: prefer}\n"
        "      - tcp: 'fd00:0::9@[fd00::0:1]:1235'\n"
        "      - tcp: '[fd00::8]@[fd00::1]:1235'\n"
        "      - rdma: 10.0.0.9@10.0.0.1:1235\n",
        "c.yaml");
    REQUIRE(config);
    const auto& paths = config->sessions[0].paths;
    REQUIRE(paths.size() == 6);
    CHECK(paths[5].fabric == ClientConfig::Path::Fabric::rdma);
    CHECK(paths[5].to_string() == "rdma:10.0.0.9@10.0.0.1:1235");
    CHECK(ClientConfig::Path::parse("tcp:10.0.0.1:1235")->same_way(paths[0]));
    CHECK(paths[0].to_string() == "10.0.0.1:1235");
    CHECK(paths[0].priority == Priority::prefer);
    CHECK(paths[1].source == "10.0.0.9");
    CHECK(paths[1].destination == "10.0.0.1:1235");
    CHECK(paths[1].priority == Priority::standby);
    CHECK(paths[2].to_string() == "10.0.0.9@10.0.0.1:1236");
    CHECK(paths[3].to_string() == "fd00::9@[fd00::1]:1235");
    CHECK(paths[4].to_string() == "fd00::8@[fd00::1]:1235");
    for (const auto& path : paths) {
        auto again = ClientConfig::Path::parse(path.to_string());
        REQUIRE(again);
        CHECK(again->same_way(path));
    }
    for (const char* wrong :
         {"", "@", "@10.0.0.1:1235", "10.0.0.9@", "10.0.0.9:7@10.0.0.1:1235", "10.0.0.9@10.0.0.1",
          "10.0.0.9@10.0.0.1:0", "10.0.0.9@[fd00::1]:1235", "fd00::9@10.0.0.1:1235",
          "[10.0.0.9]@10.0.0.1:1235", "[]@[fd00::1]:1", "a@10.0.0.1:1235",
          "10.0.0.9@10.0.0.8@10.0.0.1:1235", " 10.0.0.9@10.0.0.1:1235", "10.0.0.9 @10.0.0.1:1235"})
        CHECK_FALSE(ClientConfig::Path::parse(wrong));
}

TEST_CASE("client config: paths that are wrong") {
    const auto with_path = [](const std::string& path) {
        return "sessions:\n  - name: s\n    paths:\n      - " + path + "\n";
    };
    CHECK(complains(with_path("tcp: 10.0.0.9@[fd00::1]:1235"),
                    "c.yaml:4:14: sessions[0].paths[0].tcp: found \"10.0.0.9@[fd00::1]:1235\", "
                    "expected a numeric address and port"));
    CHECK(complains(with_path("{tcp: 10.0.0.9@10.0.0.1:1235, source: 10.0.0.9}"),
                    "paths[0].source: found \"10.0.0.9\" and a source in tcp"));
    CHECK(complains(with_path("{tcp: 10.0.0.1:1235, priority: prefered}"),
                    "paths[0].priority: found \"prefered\", expected prefer or standby, nearest "
                    "valid value \"prefer\""));
    CHECK(complains(with_path("{tcp: 10.0.0.1:1235, prioriti: standby}"), "\"priority\""));
    // Neither a priority nor the way of writing makes it another path.
    CHECK(complains(with_path("{tcp: 10.0.0.9@10.0.0.1:1235}\n"
                              "      - {tcp: 10.0.0.1:1235, source: 10.0.0.9, priority: standby}"),
                    "paths[1].tcp: found \"10.0.0.9@10.0.0.1:1235\" a second time"));
    CHECK(complains(with_path("10.0.0.1:1235"), "expected a mapping"));
    CHECK(complains(with_path("{priority: standby}"), "expected tcp or rdma with an address"));
    CHECK(complains(with_path("{tcp: 10.0.0.1:1, rdma: 10.0.0.1:2}"), "found both tcp and rdma"));
    CHECK(complains(with_path("rdma: rdma:10.0.0.1:1"), "expected a numeric address and port"));
    CHECK(complains(with_path("{rdma: 10.0.0.9@10.0.0.1:1, source: 10.0.0.9}"),
                    "found \"10.0.0.9\" and a source in rdma"));
}

TEST_CASE("client config: policy, deadlines, probes") {
    const auto config = ClientConfig::parse(
        with_session("    policy: service-time\n    hold_time: 1min\n    fail_fast_time: 1min\n"
                     "    request_deadline: 1h\n    probe_timeout: 5ms\n"
                     "    connect_timeout: 10ms\n"),
        "c");
    REQUIRE(config);
    const auto& session = config->sessions[0];
    CHECK(session.policy == rtrs::PathPolicy::service_time);
    CHECK(session.fail_fast_time == rtrs::Duration(1min));
    CHECK(session.request_deadline == rtrs::Duration(1h));
    CHECK(session.probe_timeout == rtrs::Duration(5ms));
    CHECK(session.connect_timeout == rtrs::Duration(10ms));
    for (const auto& [policy, name] : rtrs::path_policy_names) {
        const auto named =
            ClientConfig::parse(with_session(fmt::format("    policy: {}\n", name)), "c");
        REQUIRE(named);
        CHECK(named->sessions[0].policy == policy);
    }
    CHECK(complains(with_session("    policy: min-inflght\n"),
                    "nearest valid value \"min-inflight\""));
    CHECK(complains(with_session("    policy: rr\n"),
                    "expected round-robin, min-inflight, min-latency or service-time"));

    // A quarter of the heartbeat's timeout, wherever that stands.
    const auto quarter = ClientConfig::parse(
        with_session("    heartbeat: {interval: 100ms, timeout: 400ms}\n"), "c");
    REQUIRE(quarter);
    CHECK(quarter->sessions[0].probe_timeout == rtrs::Duration(100ms));
    // Two fifths of it, at most 2 s.
    const auto interval = [](const std::string& timeout) {
        const auto tuned =
            ClientConfig::parse(with_session("    heartbeat: {timeout: " + timeout + "}\n"), "c");
        REQUIRE(tuned);
        return tuned->sessions[0].heartbeat_interval;
    };
    CHECK(interval("1s") == rtrs::Duration(400ms));
    CHECK(interval("1h") == rtrs::Duration(2s));
    CHECK(complains(with_session("    probe_timeout: 5001ms\n"),
                    "more than the heartbeat's timeout"));
    CHECK(errors_of(with_session("    probe_timeout: 5s\n")).empty());
    CHECK(complains(with_session("    probe_timeout: 4ms\n"), "from 5ms to 1h"));
    CHECK(complains(with_session("    request_deadline: 9ms\n"), "from 10ms to 1h"));
    CHECK(complains(with_session("    connect_timeout: 9ms\n"), "from 10ms to 10min"));
    CHECK(errors_of(with_session("    connect_timeout: 10min\n")).empty());
    CHECK(complains(with_session("    request_deadline: forever\n"), "from 10ms to 1h"));

    const auto never = ClientConfig::parse(with_session("    fail_fast_time: never\n"), "c");
    REQUIRE(never);
    CHECK_FALSE(never->sessions[0].fail_fast_time);
    CHECK(errors_of(with_session("    fail_fast_time: 0s\n")).empty());
    CHECK(complains(with_session("    fail_fast_time: nevr\n"), "nearest valid value \"never\""));
    CHECK(complains(with_session("    fail_fast_time: 366d\n"), "from 0s to 365d, or never"));
    CHECK(complains(with_session("    hold_time: 1s\n    fail_fast_time: 2s\n"),
                    "found more than hold_time"));
}

TEST_CASE("client config: devices") {
    CHECK(errors_of(with_device("    access: rw\n    nbd: unix:/a.sock\n")).empty());
    CHECK(errors_of(with_device("    access: rw\n    nbd: [\"unix:/a\", \"tcp:[::1]:10809\"]\n"))
              .empty());
    CHECK(complains("devices: [{name: d, session: t, volume: v, access: rw, nbd: 'unix:/a'}]",
                    "expected the name of a session; there is none"));
    CHECK(complains(with_session("devices: [{name: d, session: other, volume: v, access: rw, nbd: "
                                 "'unix:/a'}]"),
                    "found \"other\", expected the name of a session: s"));
    CHECK(complains(
        with_session("devices: [{name: d, session: ss, volume: v, access: rw, nbd: 'unix:/a'}]"),
        "nearest valid value \"s\""));
    CHECK(complains(with_device("    access: rw\n    nbd: /a.sock\n"), "expected unix:/PATH"));
    CHECK(complains(with_device("    access: rw\n    nbd: unix:/" + std::string(107, 'a') + "\n"),
                    "at most 107"));
    CHECK(complains(with_device("    access: rw\n    nbd: []\n"), "at least 1"));
    CHECK(complains(with_device("    access: rw\n"), "nbd: found no such key"));
    CHECK(complains(with_device("    access: rw\n"), "tcp:[IPv6]:PORT; or a device"));
    CHECK(complains(with_device("    nbd: unix:/a\n"), "access: found no such key"));
}

TEST_CASE("client config: devices of the kernel") {
    const auto config =
        ClientConfig::parse(with_device("    access: rw\n    device: /dev/nbd12\n"), "c");
    REQUIRE(config);
    CHECK(config->devices[0].nbd.empty());
    CHECK(config->devices[0].kernel->index == 12u);
    CHECK(config->devices[0].kernel_connections == 4);
    const auto any = ClientConfig::parse(
        with_device("    access: rw\n    device: auto\n    device_connections: 16\n"), "c");
    REQUIRE(any);
    CHECK(any->devices[0].kernel == KernelDeviceName{});
    CHECK(any->devices[0].kernel_connections == 16);
    for (const char* wrong :
         {"/dev/nbd", "/dev/nbd-1", "/dev/nbd32768", "/dev/sda", "nbd0", "Auto"})
        CHECK(complains(with_device("    access: rw\n    device: " + std::string(wrong) + "\n"),
                        "expected /dev/nbdN"));
    // Nothing else is wrong with that one.
    CHECK_FALSE(complains(with_device("    access: rw\n    device: nbd0\n"), "nbd: found no"));
    CHECK(complains(with_device("    access: rw\n    device: auto\n    device_connections: 17\n"),
                    "from 1 to 16"));
    CHECK(complains(with_device("    access: rw\n    device: /dev/nbd1\n"
                                "  - {name: e, session: s, volume: w, access: rw, device: "
                                "/dev/nbd1}\n"),
                    "each device once"));
}

TEST_CASE("client config: what two devices cannot share") {
    const std::string first = with_device("    access: rw\n    nbd: unix:/a\n");
    const auto second = [&](const std::string& name, const std::string& volume,
                            const std::string& nbd) {
        return first + "  - {name: " + name + ", session: s, volume: " + volume +
               ", access: ro, nbd: " + nbd + "}\n";
    };
    CHECK(errors_of(second("e", "w", "'unix:/b'")).empty());
    // A socket serves several devices.
    CHECK(errors_of(second("e", "w", "'unix:/a'")).empty());
    CHECK(complains(second("d", "w", "'unix:/b'"), "devices[1].name"));
    CHECK(complains(second("e", "v", "'unix:/b'"), "which device \"d\" has already"));
    CHECK(complains(second("e", "w", "['unix:/b', 'unix:/b']"), "each address once"));
    CHECK(complains(first + "control: /a\n", "control: found \"/a\" which a device has"));
}

TEST_CASE("client config: what is said in two files names both places") {
    const std::string session = "sessions: [{name: s, paths: [{tcp: 127.0.0.1:1235}]}]\n";
    const std::string device =
        "devices: [{name: d, session: s, volume: v, access: rw, nbd: unix:/d}]\n";
    const auto config = ClientConfig::parse(
        {{"c.yaml", session}, {"c.d/a.yaml", device}, {"c.d/b.yaml", session + device}});
    REQUIRE(!config);
    std::string all;
    for (const auto& error : config.error()) all += to_string(error) + "\n";
    CHECK(all ==
          "c.d/b.yaml:1:19: sessions[0].name: found \"s\" a second time, expected each name once "
          "(first at c.yaml:1)\n"
          "c.d/b.yaml:2:18: devices[0].name: found \"d\" a second time, expected each name once "
          "(first at c.d/a.yaml:1)\n"
          "c.d/b.yaml:2:41: devices[0].volume: found \"v\" which device \"d\" has already through "
          "session \"s\", expected another volume or session (first at c.d/a.yaml:1)\n");
}

TEST_CASE("client config: addresses that cannot all be listened on") {
    const auto device = [](const std::string& nbd, const std::string& more = "") {
        return with_session("devices:\n  - {name: d, session: s, volume: v, access: rw, nbd: " +
                            nbd + "}\n" + more);
    };
    CHECK(complains(device("['tcp:[::]:1', 'tcp:0.0.0.0:1']"),
                    "devices[0].nbd[1]: found \"tcp:0.0.0.0:1\" beside \"tcp:[::]:1\", expected no "
                    "address that another one has as well"));
    CHECK(complains(device("['tcp:127.0.0.1:1', 'tcp:0.0.0.0:1']"), "devices[0].nbd[1]"));
    CHECK(complains(device("'tcp:0.0.0.0:1'", "metrics: {listen: '127.0.0.1:1'}\n"),
                    "metrics: found \"127.0.0.1:1\" beside \"tcp:0.0.0.0:1\""));
    CHECK(ClientConfig::parse(device("['tcp:127.0.0.1:1', 'tcp:127.0.0.2:1', 'tcp:0.0.0.0:2']",
                                     "metrics: {listen: 'unix:/run/m'}\n"),
                              "c.yaml"));
}

TEST_CASE("client config: what is another of a session") {
    const auto amended = [](const std::string& lines) {
        return with_session("amend:\n  - session: s\n" + lines);
    };
    const auto config = ClientConfig::parse(amended(R"(    policy: round-robin
    remove_paths: ['rdma:127.0.0.1:1235', 127.0.0.9:1]
    add_paths:
      - {tcp: 127.0.0.1:1235, priority: standby}
      - {tcp: 127.0.0.2:1235}
  - session: s
    remove_paths: ['tcp:127.0.0.2:1235']
)"),
                                            "c.yaml");
    REQUIRE(config);
    const auto& session = config->sessions.at(0);
    CHECK(session.policy == rtrs::PathPolicy::round_robin);
    REQUIRE(session.paths.size() == 1);
    CHECK(session.paths[0].to_string() == "127.0.0.1:1235");
    CHECK(session.paths[0].priority == rtrs::PathPriority::standby);

    CHECK(
        complains(amended("    remove_paths: [127.0.0.1:1235]\n"),
                  "amend[0].remove_paths: found 0 paths left in session \"s\", expected 1 to 128"));
    CHECK(complains(amended("    remove_paths: [here]\n"), "amend[0].remove_paths[0]: found"));
    CHECK(complains(amended("    add_paths: [{tcp: 127.0.0.2:1}, {tcp: 127.0.0.2:1}]\n"),
                    "a second time"));
    CHECK(complains(amended("    paths: []\n"), "amend[0].paths"));
    const auto passed_over =
        ClientConfig::parse(with_session("amend:\n  - session: S\n    add_paths: []\n"), "x");
    REQUIRE(passed_over);
    REQUIRE(passed_over->warnings.size() == 1);
    CHECK(passed_over->warnings[0].key == "amend[0].session");
    CHECK(passed_over->warnings[0].text ==
          "found \"S\", which is no session of any file: passed over; take it out, too");
    std::string many;
    for (int i = 0; i < 128; ++i) many += fmt::format("      - {{tcp: 127.0.1.{}:1}}\n", i);
    CHECK(complains(amended("    add_paths:\n" + many), "found 129 paths left"));
    CHECK(errors_of(amended("    add_paths:\n" + many + "    remove_paths: [127.0.0.1:1235]\n"))
              .empty());
}
