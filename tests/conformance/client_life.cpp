// A client under test: refused answers, lost paths, heartbeats, C5, C6, C8, C9, C11, C33, C41,
// C58..C63, C66, C67.

#include <algorithm>
#include <cerrno>

#include "tests/conformance/client_task.h"
#include "tests/conformance/server_task.h"

namespace conformance {
namespace {

using namespace std::chrono_literals;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// What a reconnect's first request has to say, after `before`.
void judge_reconnect(ClientTask& task, const Dial& dial, const Greeting& before) {
    const Greeting& words = dial.greeting;
    task.report.check("C6", words.recon_cnt == static_cast<std::uint16_t>(before.recon_cnt + 1),
                      fmt::format("recon_cnt {} after {}", words.recon_cnt, before.recon_cnt),
                      "one more");
    task.report.check("C5", (words.flags & 1) == 1, "first_conn is clear on a reconnect",
                      "set on every reconnect");
    task.report.check("C4",
                      words.sess_uuid == before.sess_uuid && words.paths_uuid == before.paths_uuid,
                      "other uuids on a reconnect", "the same");
}

// One attempt that is answered badly, and how the client has to take it: by the next attempt.
struct Gate {
    std::string_view id;
    std::string what;
    std::function<void(Host&)> set;
};

// Lets one attempt through to `gate`; those before and after it get -104.
void pass_gate(ClientTask& task, Round& round, const Gate& gate) {
    Host& host = round.host;
    gate.set(host);
    const auto bad_refusal = host.refuse;
    std::optional<std::size_t> taken;
    host.refuse = [&](const Dial& dial) -> std::optional<Octets> {
        if (!taken && dial.greeting.cid == 0) {
            taken = host.dials.size();
            return bad_refusal ? bad_refusal(dial) : std::nullopt;
        }
        const bool of_it =
            taken && host.dials[*taken].greeting.recon_cnt == dial.greeting.recon_cnt;
        return of_it && dial.greeting.cid != 0 ? std::nullopt
                                               : std::optional(host.reject(-ECONNRESET));
    };
    if (!task.lab.wait(task.options.reconnect,
                       [&] { return taken && host.dials.size() > *taken; })) {
        throw Stop{"the client does not connect again"};
    }
    HostPath* path = host.dials[*taken].path;
    // Nothing more on that attempt: its connections go, and the path is not taken for good.
    const bool left = task.lab.wait([&] { return path == nullptr || path->down(); });
    task.report.check(gate.id, left, gate.what + ": the path is used", "the attempt fails");
    if (!left) path->disconnect();
    host.refuse = [&host](const Dial&) { return host.reject(-ECONNRESET); };
    host.welcome = nullptr;
    host.info = nullptr;
}

std::vector<Gate> gates(const ClientTask& task) {
    const auto welcomed = [](const std::function<void(Octets&)>& change) {
        return [change](Host& host) {
            host.welcome = [&host, change](const Dial&) {
                Octets octets = host.words().octets();
                change(octets);
                return octets;
            };
        };
    };
    std::vector<Gate> all{
        {"C63", "-104",
         [](Host& host) {
             host.refuse = [&host](const Dial&) { return host.reject(-ECONNRESET); };
         }},
        {"C9", "-104 in 148 bytes",
         [](Host& host) {
             host.refuse = [&host](const Dial&) { return host.reject(-ECONNRESET, 148); };
         }},
        {"C8", "an accept with magic 0x1bbe", welcomed([](Octets& o) { put(o, 0, 0x1bbe, 2); })},
        {"C8", "an accept of version 3.0", welcomed([](Octets& o) { put(o, 2, 0x0300, 2); })},
        {"C8", "an accept with errno -5",
         welcomed([](Octets& o) { put(o, 4, static_cast<std::uint16_t>(-EIO), 2); })},
        {"C33", "INFO_RSP of type 4",
         [](Host& host) {
             host.info = [](const Octets& right) {
                 Octets octets = right;
                 put(octets, 0, 4, 2);
                 return octets;
             };
         }},
        {"C33", "INFO_RSP cut in the middle", [](Host& host) {
             host.info = [](const Octets& right) {
                 Octets octets = right;
                 octets.resize(octets.size() - 16);
                 return octets;
             };
         }}};
    if (task.lab.tcp()) {  // rdma_cm fills up
        all.push_back({"C8", "an accept of 40 bytes", welcomed([](Octets& o) { o.resize(40); })});
    }
    return all;
}

void reconnects(ClientTask& task) {
    Report& report = task.report;
    Round round(task, {.volume = able_volume()});
    Host& host = round.host;
    round.up();
    round.write("C66", 0, 8192, 11);
    HostPath& first = *host.path();
    // One connection goes, and the client lets go of all.
    first.links.rbegin()->second->disconnect();
    const std::vector<Gate> all = gates(task);
    for (const Gate& gate : all) pass_gate(task, round, gate);
    report.check("C62", first.gone(), "connections of a lost path stay", "all go");
    const Dial* before = nullptr;
    for (const Dial& dial : host.dials) {
        if (dial.greeting.cid != 0) continue;
        if (before != nullptr) judge_reconnect(task, dial, before->greeting);
        before = &dial;
    }
    report.ok("C63", "two refusals were followed by further attempts");
    // Back, with another id and more room.
    host.refuse = nullptr;
    host.options.volume.device_id = 4242;
    host.options.volume.sectors *= 2;
    host.disk.resize(2 * host.disk.size());
    host.seen.clear();
    HostPath& back = round.path_up();
    report.ok("C62", fmt::format("back after {} attempts that failed", all.size()));
    const auto index_of = [&](BlockType type) {
        const auto found =
            std::ranges::find_if(host.seen, [&](const Incoming& in) { return in.type() == type; });
        return found - host.seen.begin();
    };
    const bool opened = task.lab.wait(
        [&] { return index_of(BlockType::open) < static_cast<std::ptrdiff_t>(host.seen.size()); });
    report.check("C66", opened && index_of(BlockType::session_info) < index_of(BlockType::open),
                 opened ? "OPEN without SESS_INFO before" : "no OPEN", "SESS_INFO, then OPEN");
    round.read("C66", 0, 8192);
    task.driver.must({"size"});
    const std::string size = task.driver.output();
    report.check("C66",
                 std::strtoull(size.c_str(), nullptr, 10) == host.options.volume.sectors * 512,
                 "size " + size, fmt::format("{}", host.options.volume.sectors * 512));
    report.check("C62", host.path() == &back, "the path was lost again", "it stays");
}

void bad_key_answers(ClientTask& task) {
    Round round(task, {.volume = able_volume()});
    Host& host = round.host;
    round.up();
    const std::pair<std::string_view, Bend> all[] = {
        {"buf_id of another permit", {.key_permit = 17}},
        {"type 5", {.key_type = std::uint16_t{5}}},
        {"a body of 4 bytes", {.key_bytes = 4}}};
    for (const auto& [what, bent] : all) {
        HostPath& path = round.path_up();
        bool done = false;
        host.bend = [&, answer = bent](const Incoming& in) {
            if (done || !in.io(BlockOp::read)) return Bend{};
            done = true;
            return answer;
        };
        const auto job = task.driver.start({"read", "0", "4096", task.driver.file("read")});
        const bool lost = task.lab.wait([&] { return path.down() || job->ended(); });
        task.report.check("C41", lost && path.down(), fmt::format("{}: taken", what),
                          "the path fails");
        task.driver.finish(*job);
        host.bend = nullptr;
    }
    round.path_up();
}

void two_paths(ClientTask& task) {
    if (task.options.addresses.size() < 2) {
        task.report.not_applicable("C67", "no second address was given");
        return;
    }
    Report& report = task.report;
    Round round(task, {.volume = able_volume()}, 2);
    Host& host = round.host;
    round.up();
    const Dial& added = *std::ranges::find_if(
        host.dials, [](const Dial& dial) { return dial.address == 1 && dial.greeting.cid == 0; });
    const Dial& first = host.dials.front();
    if (first.address == 0) {
        report.check("C5", (added.greeting.flags & 1) == 0,
                     "first_conn is set on an added path's first connection", "clear");
    }
    report.check("C4",
                 host.path(0)->greeting.paths_uuid == host.path(1)->greeting.paths_uuid &&
                     host.path(0)->greeting.sess_uuid != host.path(1)->greeting.sess_uuid,
                 "two paths with other paths_uuids, or one sess_uuid", "one and two");

    // A write that is unanswered when its path goes.
    host.hold = [](const Incoming& in) { return in.io(BlockOp::write); };
    task.driver.store("data", pattern(4096, 12));
    const auto job = task.driver.start({"write", "0", task.driver.file("data")});
    task.lab.need("a write", [&] { return round.held(BlockOp::write) > 0 || job->ended(); });
    if (job->ended()) throw Stop{"the write failed: " + task.driver.output()};
    const std::size_t lost = host.held[0].path->address;
    const Greeting before = host.held[0].path->greeting;
    host.refuse = [&](const Dial& dial) -> std::optional<Octets> {
        // Whatever address it comes by: the server still has that path.
        if (dial.greeting.sess_uuid == before.sess_uuid) return host.reject(-ECONNRESET);
        return {};
    };
    host.held[0].path->disconnect();
    host.held.clear();
    const Dial again = round.next_dial(lost);
    if (task.options.extensions && (again.greeting.flags & 1) == 0) {
        report.extension("C5", "clear on a reconnect while another path is up (wire-rtrs.md)");
    } else {
        judge_reconnect(task, again, before);
    }
    task.lab.pause(5 * task.lab.options.lookout);
    const bool early = round.held(BlockOp::write) > 0;
    report.check("C67", !early,
                 "the write came on the other path while the server drained the old one",
                 "not before the server has finished with the old one");
    if (!early) {
        host.refuse = nullptr;
        const bool came =
            task.lab.wait(task.options.reconnect, [&] { return round.held(BlockOp::write) > 0; });
        report.check("C67", came, "the write never came again",
                     "once the server has finished with it");
    }
    host.hold = nullptr;
    host.refuse = nullptr;
    host.release();
    report.check("C67", task.driver.finish(*job) == 0, "the write failed: " + task.driver.output(),
                 "no error while a path is left");
}

void heartbeats(ClientTask& task) {
    Report& report = task.report;
    const Duration interval = task.options.heartbeat_interval;
    const Duration timeout = task.options.heartbeat_timeout;
    Round round(task, {.volume = able_volume()});
    Host& host = round.host;
    round.up();
    HostPath& path = *host.path();
    const Duration mean = mean_interval(task.lab, path.heartbeats, interval);
    report.check("C58", mean > interval / 2, fmt::format("every {:.2f} s", seconds(mean)),
                 fmt::format("every {:.2f} s", seconds(interval)));
    report.ok("C58", fmt::format("every {:.2f} s", seconds(mean)));
    // Unanswered, but we are heard.
    host.answers_heartbeats = false;
    const Instant end = task.lab.now() + timeout + interval;
    while (task.lab.now() < end && !path.down()) {
        path.links[0]->write_immediate({}, {}, heartbeat);
        task.lab.pause(interval / 2);
    }
    if (!report.check("C60", !path.down(), "a server that speaks was given up",
                      "any message is a sign of life")) {
        return;
    }
    const Instant silent = task.lab.now();
    const std::size_t before = path.heartbeats.size();
    const bool dead = task.lab.wait(2 * timeout + 2 * interval + 5s, [&] { return path.down(); });
    const Duration took = task.lab.now() - silent;
    report.check("C60", dead && took > timeout / 2,
                 dead ? fmt::format("given up after {:.1f} s", seconds(took))
                      : "a silent server is never given up",
                 fmt::format("given up {:.0f} s after the last message", seconds(timeout)));
    report.ok("C60", fmt::format("given up after {:.1f} s", seconds(took)));
    report.check(
        "C58", path.heartbeats.size() <= before + 1,
        fmt::format("{} heartbeats while none was answered", path.heartbeats.size() - before),
        "one");
    host.answers_heartbeats = true;
    round.path_up();
}

// Last: a client may give its session up.
void other_depth(ClientTask& task) {
    for (const std::uint32_t depth : {32u, 128u}) {
        Round round(task, {.volume = able_volume()});
        Host& host = round.host;
        round.up();
        HostPath& path = *host.path();
        path.disconnect();
        host.options.depth = depth;
        const Dial again = round.next_dial();
        task.lab.wait(
            [&] { return again.path == nullptr || again.path->down() || again.path->up(); });
        const bool used = again.path != nullptr && again.path->up();
        if (used && depth > 64 && task.options.extensions) {
            task.report.extension("C11", "a greater depth is taken, of which the old part is used");
            continue;
        }
        task.report.check("C11", !used, fmt::format("64 became {}, and it goes on", depth),
                          "refused");
    }
}

}  // namespace

std::vector<Scenario<ClientTask>> client_life_scenarios() {
    return {{"reconnects", {"C5", "C6", "C8", "C9", "C33", "C62", "C63", "C66"}, reconnects},
            {"bad-key-answers", {"C41"}, bad_key_answers},
            {"two-paths", {"C5", "C67"}, two_paths},
            {"heartbeats", {"C58", "C60"}, heartbeats},
            {"other-depth", {"C11"}, other_depth}};
}

}  // namespace conformance
