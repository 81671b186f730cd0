// A client under test: what it sends while all goes well. C1..C6, C23..C44, C57, C69..C73, C81,
// C82, C92, C93.

#include <algorithm>

#include "tests/conformance/client_task.h"
#include "tests/conformance/server_task.h"

namespace conformance {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t big = 1u << 20;
constexpr int unsupported = 77;

// After what a session sent first.
void judge_first_session(ClientTask& task, Round& round) {
    const Host& host = round.host;
    for (const Dial& dial : host.dials) {
        task.report.check("C5", (dial.greeting.flags & 1) == 1, "first_conn is clear",
                          "set on a session's first path");
        task.report.check("C6", dial.greeting.recon_cnt == 1,
                          fmt::format("recon_cnt {}", dial.greeting.recon_cnt), "1 at first");
        const auto version = [](const Octets& uuid) { return uuid[6] >> 4; };
        task.report.check(
            "C4", version(dial.greeting.sess_uuid) == 4 && version(dial.greeting.paths_uuid) == 4,
            "uuids that are not of version 4", "random ones");
    }
    task.report.ok("C3", fmt::format("{} connections", host.dials.size()));
    task.report.ok("C23", "INFO_RSP was taken as soon as INFO_REQ had come");
    const auto sent = [&](BlockType type) {
        return std::ranges::any_of(host.seen, [&](const auto& in) { return in.type() == type; });
    };
    task.report.check("C71", sent(BlockType::session_info), "no SESS_INFO", "SESS_INFO version 2");
}

// The path lives, and a heartbeat is answered.
void still_up(ClientTask& task, HostPath& path, std::string_view id, std::string_view what) {
    const unsigned answers = path.heartbeat_answers;
    path.links[0]->write_immediate({}, {}, heartbeat);
    const bool answered =
        task.lab.wait([&] { return path.heartbeat_answers > answers || path.down(); });
    task.report.check(id, answered && path.up(), fmt::format("{}: the path ended", what),
                      "a receive for each");
    task.report.check("C59", answered && path.up(), "no answer to a heartbeat", "one");
}

void first_session(ClientTask& task) {
    Report& report = task.report;
    const std::uint64_t not_ready = Lab::receiver_not_ready();
    Octets uuid;
    {
        Round round(task, {.volume = able_volume()});
        round.up();
        uuid = round.host.dials[0].greeting.paths_uuid;
        judge_first_session(task, round);
        HostPath& path = *round.host.path();
        // As many as it must have receives for, at once; nobody answers these.
        for (int i = 0; i < 1000; ++i) path.links[0]->write_immediate({}, {}, heartbeat_answer);
        still_up(task, path, "C31", "1000 heartbeat answers at once on cid 0");
        round.write("C35", 65536, big, 1);
        round.write("C35", 512, 4096, 2);
        round.read("C36", 65536, big);
        round.read("C38", 512, 4096);
        const auto may = [&](const std::vector<std::string>& words, BlockOp op) {
            if (task.driver.run(words) == unsupported) return;
            const bool came =
                std::ranges::any_of(round.host.seen, [&](const auto& in) { return in.io(op); });
            report.check("C81", came || op == BlockOp::write_zeroes,
                         fmt::format("\"{}\" sent no operation {}", words[0], static_cast<int>(op)),
                         "what is offered is used");
        };
        may({"flush"}, BlockOp::flush);
        may({"discard", "65536", "65536"}, BlockOp::discard);
        may({"zero", "131072", "65536"}, BlockOp::write_zeroes);
        report.ok("C39", "NEW_RKEY: sends with a key");
        report.ok("C40", "each chunk's newest key was used");
        round.host.keep_keys = true;
        round.write("C40", 8192, 65536, 3);
        round.read("C40", 8192, 65536);
        round.host.keep_keys = false;
        round.write("C40", 8192, 65536, 4);
        round.read("C40", 8192, 65536);
        if (round.host.invalidations == 0) {
            report.ok("C42", "it never asks for an invalidation");
            report.not_applicable("C43", "it never asks for an invalidation");
        } else {
            const auto text = fmt::format("{} invalidations", round.host.invalidations);
            report.check("C42", round.host.path() == &path, "the path was lost", "it stays");
            report.ok("C43", text + (task.lab.tcp() ? "" : ", on this device"));
        }
    }
    {  // Another session is another one.
        Round round(task, {});
        round.up();
        report.check("C4", round.host.dials[0].greeting.paths_uuid != uuid,
                     "two sessions with one paths_uuid", "a random one for each");
    }
    const std::uint64_t more = Lab::receiver_not_ready() - not_ready;
    if (task.lab.tcp()) {
        report.ok("C32", "TCP: a message without a receive ends the connection, none did");
    } else {
        report.check("C32", more == 0, fmt::format("{} RNR NAKs", more), "none");
    }
}

// Without NEW_RKEY, in regions that lie backwards; nothing offered, strange types, long accepts.
void plain_keys(ClientTask& task) {
    Report& report = task.report;
    constexpr std::uint32_t depth = 8;
    Round round(task, {.depth = depth,
                       .new_rkey = false,
                       .regions = 4,
                       .accept_bytes = 196,
                       .filler = 0xff,
                       .volume = {},
                       .answer_type = std::uint16_t{99}});
    round.up();
    report.ok("C9", "an accept of 196 bytes");
    report.ok("C8", fmt::format("bytes {}..195 of an accept are not looked at",
                                task.options.extensions ? 24 : 20));
    report.ok("C73", "type 99 in the answers to SESS_INFO and OPEN");
    report.ok("C39", "plain keys: writes with immediate");
    round.write("C35", 0, big, 5);
    round.read("C36", 0, big);

    HostPath& path = *round.host.path();
    for (std::uint32_t i = 0; i < 2 * depth; ++i) {
        path.links.rbegin()->second->write_immediate({}, {}, unknown_immediate);
    }
    still_up(task, path, "C31", "2 * depth immediates at once on another connection");
    round.read("C57", 4096, 65536);
    // As many at once as there are permits.
    round.host.seen.clear();
    round.host.hold = [](const Incoming& in) { return in.io(BlockOp::read); };
    const auto job = task.driver.start({"reads", "16", "4096"});
    const bool full =
        task.lab.wait([&] { return round.held(BlockOp::read) >= depth - 1 || job->ended(); });
    task.lab.pause(task.lab.options.lookout);
    const std::size_t before = path.heartbeats.size();
    const unsigned answers = path.heartbeat_answers;
    path.links[0]->write_immediate({}, {}, heartbeat);
    const bool answered = task.lab.wait([&] { return path.heartbeat_answers > answers; });
    report.check("C59", answered, "no answer to a heartbeat while every permit was in use", "one");
    const bool beats = task.lab.wait(3 * task.options.heartbeat_interval + 5s,
                                     [&] { return path.heartbeats.size() > before; });
    report.check("C61", beats && answered, "no heartbeat while every permit was in use", "one");
    std::set<std::uint32_t> permits;
    for (const Incoming& in : round.host.held) permits.insert(in.permit);
    round.host.hold = nullptr;
    round.host.release();
    report.check(
        "C37", task.driver.finish(*job) == 0 && full,
        fmt::format("{} of {} permits at once: {}", permits.size(), depth, task.driver.output()),
        "as many requests at once as permits");
    report.check("C30", permits.size() >= depth - 1,
                 fmt::format("only {} chunks were seen in use", permits.size()),
                 "each chunk where its descriptor says");
    report.ok("C30", "4 regions of 2 chunks, the last in memory first");

    task.driver.run({"discard", "0", "65536"});
    task.driver.run({"zero", "0", "65536"});
    report.ok("C81", "nothing was offered, nothing was sent");
}

// Under NEW_RKEY a receive that comes back must have its 8 bytes again.
void unknown_immediates(ClientTask& task) {
    Round round(task, {.depth = 16, .volume = able_volume()});
    round.up();
    HostPath& path = *round.host.path();
    for (const auto& [cid, link] : path.links) {
        const std::uint32_t more = cid == 0 ? 1024 : 2 * round.host.options.depth;
        for (std::uint32_t i = 0; i < more + 32; ++i) {
            link->write_immediate({}, {}, unknown_immediate + (i % 2 << 29));
            if (i % 16 == 15) task.lab.pause(std::chrono::milliseconds(5));
        }
    }
    still_up(task, path, "C57", "more unknown immediates than receives");
    task.driver.store("data", pattern(65536, 7));
    task.report.check(
        "C57", task.driver.run({"write", "0", task.driver.file("data")}) == 0 && path.up(),
        "under NEW_RKEY: the path is lost at a later answer", "ignored, the receive comes back");
}

void source_is_kept(ClientTask& task) {
    Round round(task, {.volume = able_volume()});
    round.up();
    round.host.hold = [](const Incoming& in) { return in.io(BlockOp::write); };
    task.driver.store("data", pattern(4096, 9));
    const auto job = task.driver.start({"write", "0", task.driver.file("data")});
    task.lab.need("a write", [&] { return round.held(BlockOp::write) > 0 || job->ended(); });
    task.lab.pause(3 * task.lab.options.lookout);
    task.report.check("C44", !job->ended(), "a write was reported before its answer",
                      "not before the answer");
    round.host.hold = nullptr;
    round.host.release();
    task.report.check("C44", task.driver.finish(*job) == 0, task.driver.output(), "it succeeds");
}

void geometries(ClientTask& task) {
    struct Geometry {
        std::uint32_t depth, chunk, header;
    };
    constexpr Geometry all[] = {{2, 8192, 4096},      {3, 131072, 4096},   {1025, 8192, 4096},
                                {1025, 131072, 4096}, {512, 131072, 4096}, {64, 1u << 20, 4096},
                                {16, 262144, 65536},  {1, 131072, 4096}};
    for (const auto& [depth, chunk, header] : all) {
        const std::string what =
            fmt::format("depth {}, chunks of {}, headers of {}", depth, chunk, header);
        const std::string_view id = header == 65536 ? "C93" : "C92";
        if (depth < task.options.depth_min) {
            task.report.not_applicable(id, fmt::format("depth {}: declared as too small", depth));
            continue;
        }
        Round round(task, {.depth = depth,
                           .max_io_bytes = chunk - header,
                           .max_header_bytes = header,
                           .new_rkey = depth < 1025,
                           .volume = able_volume()});
        try {
            round.up();
            round.write(id, 4096, 300000 / 4096 * 4096, depth);
            round.read(id, 4096, 300000 / 4096 * 4096);
            task.report.ok("C10", what);
            task.report.ok("C34");
        } catch (const Stop& stop) {
            task.report.not_ok(id, what + ": " + stop.why, "served");
        }
    }
}

}  // namespace

VolumeWords able_volume() {
    VolumeWords words;
    words.max_sectors = 248;
    words.write_zeroes_sectors = 2048;
    words.discard_sectors = 2048;
    words.discard_granularity = 4096;
    words.cache_policy = 3;
    return words;
}

// --- Round

namespace {

std::vector<std::string> listen_addresses(const ClientTask& task, std::size_t count) {
    std::vector<std::string> addresses;
    for (std::size_t i = 0; i < count; ++i) {
        const std::string& way = task.options.addresses.at(i);
        addresses.push_back(way.substr(way.find('@') + 1));
    }
    return addresses;
}

}  // namespace

Round::Round(ClientTask& its_task, const HostOptions& options, std::size_t paths)
    : task(its_task), host(task.lab, task.report, listen_addresses(task, paths), options) {
    host.extensions = task.options.extensions;
}

Round::~Round() {
    if (!started_) return;
    host.hold = nullptr;
    host.refuse = nullptr;
    host.welcome = nullptr;
    host.info = nullptr;
    host.bend = nullptr;
    host.answers_heartbeats = true;
    host.release();
    try {
        task.driver.run({"down"});
    } catch (const Stop& stop) {
        fmt::print(stderr, "  {}\n", stop.why);
    }
}

std::vector<std::string> Round::up_words() const {
    std::vector<std::string> words{"up", task.options.session, task.options.volume};
    for (std::size_t i = 0; i < host.addresses.size(); ++i) {
        const std::string& way = task.options.addresses[i];
        const auto at = way.find('@');
        words.push_back((at == std::string::npos ? "" : way.substr(0, at + 1)) + host.addresses[i]);
    }
    return words;
}

void Round::up() {
    started_ = true;
    task.driver.must(up_words());
    for (std::size_t i = 0; i < host.addresses.size(); ++i) {
        task.lab.need("a path", [&] { return host.path(i) != nullptr; });
    }
}

void Round::read(std::string_view id, std::uint64_t at, std::size_t bytes) {
    const std::string name = task.driver.file("read");
    task.driver.must({"read", std::to_string(at), std::to_string(bytes), name});
    const Octets got = task.driver.content("read");
    const auto begin = host.disk.begin() + static_cast<std::ptrdiff_t>(at);
    task.report.check(id, got.size() == bytes && std::equal(got.begin(), got.end(), begin),
                      fmt::format("a read of {} bytes brought other data", bytes), "the volume's");
}

void Round::write(std::string_view id, std::uint64_t at, std::size_t bytes, unsigned salt) {
    const Octets data = pattern(bytes, salt);
    task.driver.store("data", data);
    task.driver.must({"write", std::to_string(at), task.driver.file("data")});
    task.driver.must({"flush"});
    const auto begin = host.disk.begin() + static_cast<std::ptrdiff_t>(at);
    task.report.check(id, std::equal(data.begin(), data.end(), begin),
                      fmt::format("a write of {} bytes left other data", bytes),
                      "what was written");
}

const Dial& Round::next_dial(std::size_t address) {
    const std::size_t known = host.dials.size();
    const auto found = [&]() -> const Dial* {
        for (std::size_t i = known; i < host.dials.size(); ++i) {
            if (host.dials[i].address == address && host.dials[i].greeting.cid == 0) {
                return &host.dials[i];
            }
        }
        return nullptr;
    };
    if (!task.lab.wait(task.options.reconnect, [&] { return found() != nullptr; })) {
        throw Stop{"the client does not connect again"};
    }
    return *found();
}

HostPath& Round::path_up(std::size_t address) {
    if (!task.lab.wait(task.options.reconnect, [&] { return host.path(address) != nullptr; })) {
        throw Stop{"the client's path does not come back"};
    }
    return *host.path(address);
}

std::size_t Round::held(BlockOp op) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(host.held, [&](const Incoming& in) { return in.io(op); }));
}

std::vector<Scenario<ClientTask>> client_session_scenarios() {
    return {
        {"first-session",
         {"C1",  "C2",  "C3",  "C4",  "C5",  "C6",  "C23", "C24", "C25", "C31", "C32", "C34", "C35",
          "C36", "C38", "C39", "C40", "C42", "C43", "C59", "C69", "C70", "C71", "C81", "C82"},
         first_session},
        {"plain-keys", {"C8", "C9", "C30", "C37", "C57", "C61", "C73"}, plain_keys},
        {"unknown-immediates", {"C57"}, unknown_immediates},
        {"source-is-kept", {"C44"}, source_is_kept},
        {"geometries", {"C10", "C92", "C93"}, geometries}};
}

}  // namespace conformance
