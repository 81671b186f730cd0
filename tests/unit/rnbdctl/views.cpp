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
   "queue_depth":512,"max_io_bytes":126976,"in_flight":2,"reads":1234,"writes":1,"read_bytes":4096,"write_bytes":512,"errors":0,"features":{}}]})");

const json client =
    json::parse(R"({"daemon":"rnbd-client","version":"0.1.0","pid":8,"uptime_s":5,"state":"running",
 "sessions":[{"name":"host-a","state":"up","reason":"","age_s":4,"queue_depth":512,"max_io_bytes":126976,
   "permits_free":511,"in_flight":0,"held":0,"paths":[{"source":"","destination":"127.0.0.1:1235","fabric":"tcp",
   "state":"backoff","reason":"Connection refused","age_s":1,"next_attempt_s":0.2,"attempts":3,"latency_us":0}]}],
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
    CHECK_FALSE(has(status, "delayed"));
    json late = server;
    late["exports"][0]["delayed"] = true;
    CHECK(has(status_view(late), "/srv/v (delayed)"));
    CHECK(has(status, "Session host-a from 127.0.0.1: up for 3s, queue depth 512, 2 in flight\n"));
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
    CHECK_FALSE(has(status, "lost"));
    json lossy = client;
    lossy["devices"][0]["lost_caches"] = 1;
    lossy["devices"][0]["lost_writes"] = 1200;
    CHECK(has(status_view(lossy),
              "  vol1: lost 1,200 acknowledged writes that were not flushed, with 1 cache of the "
              "server\n"));
}

TEST_CASE("views: members that are absent or odd do no harm") {
    for (auto* view : {&list_view, &status_view, &map_view, &unmap_view, &version_view})
        for (
            const json& odd :
            {json(), json::array(), json(7), json::object(),
             json::parse(
                 R"({"daemon":"rnbd-server","exports":[1,null,{"name":[],"size_bytes":-1,"opens":{},"age_s":"x"}],"sessions":7,"listen":[[]]})"),
             json::parse(R"({"daemon":3,"devices":[{"nbd":[1]}],"sessions":[{"paths":[7]}]})")})
            CHECK_NOTHROW((*view)(odd));
    CHECK(list_view(json{{"daemon", "rnbd-server"}}) == "no exports\n");
    CHECK(list_view(json::object()) == "no devices\n");
    CHECK(has(list_view(json::parse(R"({"devices":[{"name":"a\u001b[2J"}]})")), "a\\x1b[2J"));
}
