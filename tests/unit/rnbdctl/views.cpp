#include "rnbdctl/views.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace rnbd;
using nlohmann::json;

namespace {

const json server = json::parse(R"({"daemon":"rnbd-server","version":"0.1.0","pid":7,"uptime_s":61,
 "state":"running","listen":[{"fabric":"tcp","address":"127.0.0.1:1235"}],
 "exports":[{"name":"vol1","kind":"path","path":"/srv/v","size_bytes":1073741824,"block_size":4096,
   "io":"direct","state":"ready","age_s":5,"opens":[{"session":"host-a","access":"rw"}]},
  {"name":"vol2","kind":"path","path":"/srv/w","state":"waiting","reason":"No such file or directory","age_s":2,"opens":[]}],
 "sessions":[{"name":"host-a","id":"x","peer":"127.0.0.1","state":"up","age_s":3,
   "paths":[{"local":"127.0.0.1:1235","remote":"127.0.0.1:5","state":"connected","age_s":3,"heartbeat_age_s":0.4}],
   "queue_depth":512,"max_io_bytes":126976,"in_flight":2,"protection":"fenced","stale":3,"answered":2,"waited":1,"reads":1234,"writes":1,"read_bytes":4096,"write_bytes":512,"errors":0,"features":{}}]})");

const json client =
    json::parse(R"({"daemon":"rnbd-client","version":"0.1.0","pid":8,"uptime_s":5,"state":"running",
 "sessions":[{"name":"host-a","state":"up","reason":"","age_s":4,"queue_depth":512,"max_io_bytes":126976,
   "permits_free":511,"in_flight":0,"held":0,"protection":"exactly-once","policy":"min-inflight","paths":[
   {"label":"127.0.0.1:1235","source":"","destination":"127.0.0.1:1235","fabric":"tcp","priority":"prefer",
   "state":"backoff","reason":"Connection refused","age_s":1,"next_attempt_s":0.2,"attempts":3,"latency_us":0,
   "reconnects":2,"reconnects_failed":7,"in_flight":1,"sent":1000,"completed":990,"failed_over":9,"retried":8,"stale":1,
   "request_p50_us":128,"request_p99_us":2048,"request_max_us":3000}]}],
 "devices":[{"name":"vol1","session":"host-a","volume":"vol1","access":"rw","state":"open","reason":"","age_s":4,
   "size_bytes":1073741824,"block_size":4096,"nbd":["unix:/a"],"connections":2,"reads":1,"writes":2,
   "read_bytes":3,"write_bytes":4,"errors":5,"lost_caches":0,"lost_writes":0}]})");

bool has(const std::string& text, const std::string& part) {
    INFO(text);
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("views: the server's list and status") {
    CHECK(list_view(server) ==
          "EXPORT   SIZE  OPENS  STATE\n"
          "vol1    1 GiB      1  ready\n"
          "vol2        -      0  waiting (No such file or directory)\n");
    const std::string status = status_view(server);
    CHECK(has(status, "rnbd-server 0.1.0, pid 7, running for 1m 1s\n"));
    CHECK(has(status, "listening on tcp:127.0.0.1:1235\n"));
    CHECK(has(status, "host-a (rw)"));
    json drained = server;
    drained["state"] = "draining";
    CHECK(has(status_view(drained), "pid 7, running for 1m 1s, draining\n"));
    drained["age_s"] = 2.4;
    CHECK(has(status_view(drained), "pid 7, running for 1m 1s, draining for 2s\n"));
    const std::string told =
        "rnbd-server is draining for 2s: no session comes in, nothing is opened, until rnbdctl "
        "drain --off\n";
    CHECK(list_view(drained) == told + list_view(server));
    CHECK(exports_view(drained) == told + exports_view(server));
    drained["state"] = "stopping";
    CHECK(list_view(drained) == "rnbd-server is stopping for 2s\n" + list_view(server));
    json absent = server;
    absent["listen"].push_back({{"fabric", "tcp"},
                                {"address", "192.0.2.1:1235"},
                                {"state", "waiting"},
                                {"reason", "Cannot assign requested address"},
                                {"age_s", 61},
                                {"next_attempt_s", 1}});
    CHECK(
        has(status_view(absent),
            "listening on tcp:127.0.0.1:1235\n"
            "waiting to listen on tcp:192.0.2.1:1235: Cannot assign requested address (for 1m 1s, "
            "next attempt in 1s)\n"));
    absent["listen"].erase(0);
    CHECK(has(status_view(absent), "listening on nothing\nwaiting to listen on tcp:192.0.2.1:"));
    json several = server;
    several["workers"] = {{{"number", 0}}, {{"number", 1}}, {{"number", 2}}};
    CHECK(has(status_view(several), "running for 1m 1s, 3 workers\n"));
    json kernel = server;
    kernel["listen"] = {{{"fabric", "rdma"},
                         {"device", "mlx5_0"},
                         {"address", "10.0.0.1:1234"},
                         {"clients", "kernel"}}};
    CHECK(has(status_view(kernel), "listening on rdma/mlx5_0:10.0.0.1:1234 (kernel clients)\n"));
    CHECK_FALSE(has(status, "delayed"));
    json late = server;
    late["exports"][0]["delayed"] = true;
    CHECK(has(status_view(late), "/srv/v (delayed)"));
    CHECK(has(status, "Session host-a from 127.0.0.1: up for 3s, queue depth 512, 2 in flight\n"));
    CHECK(has(status,
              "  protection fenced: 3 late attempts refused, 2 retries answered without "
              "running again, 1 waited for an earlier attempt\n"));
    CHECK(has(status, "1,234"));
}

TEST_CASE("views: the client's list and status") {
    CHECK(list_view(client) ==
          "DEVICE   SIZE  ACCESS  VOLUME          NBD      STATE\n"
          "vol1    1 GiB  rw      vol1 at host-a  unix:/a  open\n");
    const std::string status = status_view(client);
    CHECK(has(status, "backoff (Connection refused)"));
    CHECK(has(status, "511 permits free"));
    CHECK(has(status, "Traffic:\n"));
    CHECK(has(status,
              "  protection exactly-once, policy min-inflight: 9 requests failed over, "
              "8 retried, 1 refused as late\n"));
    CHECK_FALSE(has(status, "lost"));
    json never = client;
    never["devices"][0]["size_bytes"] = never["devices"][0]["block_size"] = 0;
    CHECK(has(list_view(never), "vol1       -  rw "));
    CHECK(has(status_view(never), "  rw         -      -  unix:/a"));
    json lossy = client;
    lossy["devices"][0]["lost_caches"] = 1;
    lossy["devices"][0]["lost_writes"] = 1200;
    CHECK(has(status_view(lossy),
              "  vol1: lost 1,200 acknowledged writes that were not flushed, with 1 cache of the "
              "server\n"));
    json left = client;
    left["devices"][0]["left_behind"] = 2;
    left["devices"][0]["waiting_for_these"] = 3;
    CHECK(has(status_view(left),
              "  vol1: 2 changes of clients that have gone are in progress, 3 requests of others "
              "wait for that\n"));
}

TEST_CASE("views: paths, one line each; results of operations") {
    CHECK(paths_view(client) ==
          "SESSION  PATH            STATE    AGE  NEXT               PRIORITY  IN FLIGHT   SENT  "
          "DONE  FAILED "
          "OVER  RETRIED  STALE  RECONNECTS     P50     P99     MAX  HEARTBEAT  REASON\n"
          "host-a   127.0.0.1:1235  backoff   1s  attempt in 200 ms  prefer            1  1,000   "
          "990         "
          "   9        8      1         2/7  128 us  2.0 ms  3.0 ms          -  Connection "
          "refused\n");
    json unknown = client;
    unknown["sessions"][0]["protection"] = nullptr;
    CHECK(has(status_view(unknown), "  protection -, policy min-inflight: "));
    json busy = client;
    json& path = busy["sessions"][0]["paths"][0];
    path["next_attempt_s"] = nullptr;
    path["gives_up_s"] = 3.14;
    CHECK(has(paths_view(busy), "given up in 3.1 s"));
    path["gives_up_s"] = nullptr;
    path["dead_s"] = 4.2;
    CHECK(has(paths_view(busy), "dead in 4.2 s if silent"));
    CHECK(has(status_view(busy), "dead in 4.2 s if silent"));
    CHECK(paths_view(json::object()) == "no paths\n");
    CHECK(
        path_view(json::parse(
            R"({"session":"s","path":"1.2.3.4:5","state":"removed","paths":2,"paths_connected":1})")) ==
        "path 1.2.3.4:5 of session s is removed; 1 of 2 paths connected\n");
    CHECK(
        path_view(json::parse(
            R"({"session":"s","path":"1.2.3.4:5","state":"closed","paths":1,"paths_connected":0})")) ==
        "path 1.2.3.4:5 of session s is closed; 0 of 1 paths connected: no I/O goes on until one "
        "is\n");
    CHECK(policy_view(json::parse(R"({"session":"s","policy":"round-robin"})")) ==
          "s: round-robin\n");
    CHECK(hold_view(json::parse(R"({"limit_s":null,"sessions":[]})")) == "as configured\n");
    CHECK(hold_view(json::parse(
              R"({"limit_s":1.25,"sessions":[{"name":"s","hold_time_s":1.25,"hold_left_s":0.5},
                                             {"name":"t","hold_time_s":null},
                                             {"name":"u","hold_time_s":null,"hold_is_over":true}]})")) ==
          "at most 1.25 s, until rnbd-client ends or rnbdctl hold --off\n"
          "SESSION  HOLDS FOR  FAILS IN\n"
          "s           1.25 s    500 ms\n"
          "t          forever         -\n"
          "u          forever      over\n");
    CHECK(
        has(hold_view(json::parse(R"({"limit_s":10,"sessions":[{"name":"s","hold_time_s":14}]})")),
            "s             14 s         -\n"));
}

TEST_CASE("views: exports say when their storage is tried again, and that their size is another") {
    json waiting = server;
    waiting["exports"][1]["next_attempt_s"] = 0.8;
    CHECK(has(exports_view(waiting), "2s  attempt in 800 ms  -  "));
    CHECK_FALSE(has(exports_view(waiting), "configured size"));
    json other = server;
    other["exports"][0]["configured_size_bytes"] = 1 << 20;
    CHECK(
        has(exports_view(other),
            "vol1: its configured size is 1 MiB, but its file was there and keeps its own, which "
            "is larger: expected 1073741824 in the configuration (to cut the file would lose what "
            "lies beyond)\n"));
    other["exports"][0]["configured_size_bytes"] = 1ull << 31;
    CHECK(has(exports_view(other),
              "vol1: its configured size is 2 GiB, but its file was there and keeps its own; "
              "rnbdctl exports resize vol1 2147483648 makes it so large\n"));
    other["exports"][0]["configured_size_bytes"] = other["exports"][0]["size_bytes"];
    CHECK_FALSE(has(exports_view(other), "configured size"));
}

TEST_CASE("views: what is wrong with an export is in the status, too") {
    json odd = server;
    odd["exports"][0]["last_error"] = {{"errors", 16},
                                       {"age_s", 2.5},
                                       {"request", "write"},
                                       {"session", "host-a"},
                                       {"error", "No space left on device"}};
    odd["exports"][1]["shut_out"] = {{{"session", "host-b"}, {"left_s", 30}}};
    const std::string failed =
        "vol1: 16 requests failed, the last one 2.5 s ago: write for host-a: No space left on "
        "device\n";
    const std::string out = "vol2: session host-b may not open it for 30.0 s\n";
    CHECK(has(exports_view(odd), failed + out));
    CHECK(has(status_view(odd), "  " + failed + "  " + out));
}

TEST_CASE("views: a device that the kernel has not is one in the list and the status") {
    json without = client;
    without["devices"][0]["kernel"] = {{"path", ""}, {"state", "waiting"}, {"reason", "no nbd"}};
    CHECK(list_view(without) == list_view(client) + "vol1: kernel device waiting: no nbd\n");
    CHECK(has(status_view(without), "  vol1: kernel device waiting: no nbd\n"));
}

TEST_CASE("views: one export shows who may open it") {
    json one = server;
    one["exports"].erase(1);
    one["exports"][0]["allow"] = {{{"session", "host-a"}, {"address", nullptr}, {"access", "rw"}},
                                  {{"session", "*"}, {"address", "10.0.0.0/8"}, {"access", "ro"}}};
    CHECK(has(exports_view(one), "vol1: may be opened by host-a (rw), * (ro) from 10.0.0.0/8\n"));
    one["exports"][0]["allow"] = json::array();
    CHECK(has(exports_view(one), "vol1: may be opened by nobody\n"));
    CHECK_FALSE(has(exports_view(server), "may be opened"));
}

TEST_CASE("views: one is one") {
    CHECK(drain_view(json::parse(R"({"draining":true,"sessions":1,"opens":2,"in_flight":0})")) ==
          "draining until rnbdctl drain --off: 1 session, 2 exports open, 0 requests in flight\n");
}

TEST_CASE("views: what was added for nobody, and who may come again, is said") {
    const json added{{"export", "vol1"}, {"state", "ready"}};
    CHECK(export_view(added) == "export vol1 is ready\n");
    CHECK(export_for_nobody_view(added) ==
          "export vol1 is ready\nno session may open it: it was added without --allow\n");
    json evicted{{"export", "vol1"}, {"session", "host-a"}, {"out_s", 5}};
    CHECK(export_evict_view(evicted) ==
          "export vol1 is taken from session host-a, which may open it again in 5.0 s\n");
    evicted["out_s"] = 0;
    CHECK(export_evict_view(evicted) == "session host-a may open export vol1 again\n");
}

TEST_CASE("views: explain says what each request waits for") {
    const auto explained = [](const char* stage, const char* next) {
        json document{
            {"device", client["devices"][0]},
            {"session", client["sessions"][0]},
            {"settings",
             {{"hold_time_s", nullptr}, {"request_deadline_s", 2}, {"probe_timeout_s", 1.25}}}};
        document["requests"] = json::array({{{"device", "vol1"},
                                             {"operation", "write"},
                                             {"offset", 4096},
                                             {"bytes", 512},
                                             {"stage", stage},
                                             {"age_s", 1.5},
                                             {"path", "p"},
                                             {"attempts", 1},
                                             {"next", json::parse(next)}}});
        return explain_view(document);
    };
    const std::string text = explained(
        "in_flight",
        R"([{"event":"probe","path":"p","in_s":1.2},{"event":"path_dead","path":"p","in_s":3.1}])");
    CHECK(has(text, "Device vol1: volume vol1 of session host-a, open for 4s\n"));
    CHECK(has(text, "Session host-a: up for 4s, 0 of 1 paths connected, policy min-inflight\n"));
    CHECK(has(text, "Protection exactly-once: a request goes on on another path at once"));
    CHECK(has(text, "hold_time forever"));
    CHECK(has(text, "for 2 s has its path probed, which is dead after 1.25 s of silence"));
    CHECK(has(text, "path probed in 1.2 s; path dead in 3.1 s if silent\n"));
    CHECK(has(explained("no_path", R"([{"event":"connect","path":"p","in_s":0.4},
                                       {"event":"fail","path":"","in_s":55}])"),
              "held: no path is up  1.5 s  p            1  sent when p is connected (next attempt "
              "in 400 ms); fails at hold time in 55.0 s\n"));
    CHECK(has(explained("no_path", R"([{"event":"no_attempt","path":"","in_s":null},
                                       {"event":"held_for_ever","path":"","in_s":null}])"),
              "no path will be dialled: all are closed; held for ever: no hold_time is set\n"));
    CHECK(has(explained("in_flight", R"([{"event":"path_drained","path":"p","in_s":null}])"),
              "leaves p when that has drained\n"));
    CHECK(has(explained("in_flight", R"([{"event":"answer","path":"p","in_s":null}])"),
              "late, but its path answers: storage or link is slow\n"));
    CHECK(
        has(explained("payload", R"([{"event":"payload","path":"","in_s":29}])"),
            "waits for its NBD client  1.5 s  p            1  its NBD client sends the rest of the "
            "data in 29.0 s, or loses its connection\n"));
    CHECK(has(explained("answered", R"([{"event":"taken","path":"","in_s":null}])"),
              "its NBD client takes the answer\n"));
    CHECK(has(explained("settling", R"([{"event":"fence","path":"","in_s":null}])"),
              "held: older attempts"));
    CHECK(has(explained("something", R"([{"event":"new","path":"","in_s":null}])"), "something"));
}

TEST_CASE("views: members that are absent or odd do no harm") {
    for (auto* view : {&list_view, &status_view, &map_view, &unmap_view, &version_view, &paths_view,
                       &path_view, &policy_view, &hold_view, &explain_view})
        for (
            const json& odd :
            {json(), json::array(), json(7), json::object(),
             json::parse(
                 R"({"daemon":"rnbd-server","exports":[1,null,{"name":[],"size_bytes":-1,"opens":{},"age_s":"x"}],"sessions":7,"listen":[[]]})"),
             json::parse(
                 R"({"device":[],"session":{"paths":[{"state":[]}]},"requests":[{"next":[{"event":4}]},8]})"),
             json::parse(R"({"daemon":3,"devices":[{"nbd":[1]}],"sessions":[{"paths":[7]}]})")})
            CHECK_NOTHROW((*view)(odd));
    CHECK(list_view(json{{"daemon", "rnbd-server"}}) == "no exports\n");
    CHECK(list_view(json::object()) == "no devices\n");
    CHECK(has(list_view(json::parse(R"({"devices":[{"name":"a\u001b[2J"}]})")), "a\\x1b[2J"));
}
