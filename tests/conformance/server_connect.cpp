// A server under test: connection requests and the info exchange, C12..C22, C26..C29, C33.

#include <algorithm>
#include <cstdlib>

#include "tests/conformance/server_task.h"

namespace conformance {
namespace {

using namespace std::chrono_literals;
constexpr int connection_reset = -104;

std::string shown(const Link& link) {
    if (link.established) return "accepted";
    if (!link.rejected) return "no answer, disconnected";
    if (link.private_data.size() < 56) {
        return fmt::format("a reject with {} bytes", link.private_data.size());
    }
    const Welcome words = Welcome::of(link.private_data);
    return fmt::format("a reject with magic {:#06x}, version {:#06x}, errno {}", words.magic,
                       words.version, words.error);
}

bool rejected_with(const Link& link, int error) {
    if (!link.rejected || link.private_data.size() < 56) return false;
    const Welcome words = Welcome::of(link.private_data);
    return words.magic == 0x1bbd && words.version >> 8 == 2 && words.error == error;
}

void expect_reject(ServerTask& task, std::string_view id, const Link& link, int error,
                   std::string_view what) {
    task.report.check(id, rejected_with(link, error), fmt::format("{}: {}", what, shown(link)),
                      fmt::format("{}: a reject of 56 bytes with errno {}", what, error));
}

// A request of its own, on a path of its own.
void refuses(ServerTask& task, std::string_view id, int error, std::string_view what,
             const std::function<void(Greeting&)>& change) {
    auto path = task.unconnected();
    Greeting bad = path->greeting;
    change(bad);
    expect_reject(task, id, path->dial(0, bad.octets()), error, what);
}

void versions(ServerTask& task) {
    refuses(task, "C12", connection_reset, "magic 0x1bbe", [](Greeting& g) { g.magic = 0x1bbe; });
    refuses(task, "C12", connection_reset, "version 0x0100",
            [](Greeting& g) { g.version = 0x0100; });
    refuses(task, "C12", connection_reset, "version 0x0300",
            [](Greeting& g) { g.version = 0x0300; });
    if (task.lab.tcp()) {  // rdma_cm fills up to 56
        auto path = task.unconnected();
        Octets head = path->greeting.octets();
        head.resize(55);
        expect_reject(task, "C12", path->dial(0, head), connection_reset, "55 bytes");
    }
    for (const auto version : {std::uint16_t{0x0201}, std::uint16_t{0x02ff}}) {
        auto path = task.unconnected();
        path->greeting.version = version;
        const Link& link = path->dial(0);
        task.report.check("C12", link.established,
                          fmt::format("version {:#06x}: {}", version, shown(link)),
                          "any minor version accepted");
    }
    refuses(task, "C13", connection_reset, "cid = cid_num", [](Greeting& g) { g.cid = g.cid_num; });
    refuses(task, "C13", connection_reset, "cid_num 4097", [](Greeting& g) { g.cid_num = 4097; });
    refuses(task, "C14", -6, "an unknown session without first_conn",
            [](Greeting& g) { g.flags = 0; });
}

void whole_answers(ServerTask& task) {
    auto path = task.unconnected();
    path->greeting.cid_num = 3;
    path->open_path(task.options.session);
    task.report.ok("C22", "INFO_REQ right behind the accept was taken");
    for (const auto& link : path->links) {
        Octets body = link->private_data;
        task.report.check("C17", body.size() >= 56, fmt::format("{} bytes", body.size()), "56");
        body.resize(56);
        const Welcome words = Welcome::of(body);
        task.report.check(
            "C17",
            words.magic == 0x1bbd && words.version == 0x0200 && words.error == 0 &&
                words.queue_depth > 0 && words.max_io_bytes > 0 && words.max_header_bytes > 0 &&
                (words.flags & ~Welcome::new_rkey) == 0,
            fmt::format("cid {}: magic {:#06x}, version {:#06x}, errno {}, depth {}, io {}, header "
                        "{}, flags {:#x}",
                        link->cid, words.magic, words.version, words.error, words.queue_depth,
                        words.max_io_bytes, words.max_header_bytes, words.flags),
            "magic 0x1bbd, version 0x0200, errno 0, sizes, flags 0 or 2");
        task.report.check("C17",
                          std::all_of(body.begin() + 20, body.end(), [](auto b) { return b == 0; }),
                          "bytes 20..55 not zero", "zero");
        Octets first = path->links[0]->private_data;
        first.resize(56);
        task.report.check("C17", body == first, fmt::format("cid {} has another body", link->cid),
                          "the same on every connection");
    }
}

void not_connecting(ServerTask& task) {
    auto connected = task.path();
    const Link& again = connected->dial(0);
    expect_reject(task, "C16", again, connection_reset, "cid 0 of a connected path");
    connected->disconnect();

    auto half = task.unconnected();
    half->dial(0);
    expect_reject(task, "C16", half->dial(0), connection_reset, "a taken cid");
    Greeting other = half->greeting;
    other.cid = 1;
    other.cid_num = 3;
    expect_reject(task, "C16", half->dial(1, other.octets()), connection_reset,
                  "another cid_num on the same path");
    task.report.check("C16", half->links[0]->up(), "the refusals ended the path that was there",
                      "the path goes on");
}

void reconnect_counts(ServerTask& task) {
    auto path = task.unconnected();
    using Count = std::uint16_t;
    for (const Count count : {Count{65535}, Count{0}, Count{7}, Count{3}}) {
        path->greeting.recon_cnt = count;
        // The same path comes back when the server has let go of it.
        bool up = false;
        task.lab.wait([&] {
            path->links.clear();
            up = path->connect();
            if (!up) task.lab.pause(50ms);
            return up;
        });
        task.report.check("C18", up && path->inform(task.options.session),
                          fmt::format("recon_cnt {} is not served", count), "any value");
        path->disconnect();
        path->links.clear();
    }
}

void same_addresses(ServerTask& task) {
    auto path = task.path();
    auto twin = task.unconnected();
    twin->greeting.paths_uuid = path->greeting.paths_uuid;
    twin->greeting.flags = 0;
    expect_reject(task, "C15", twin->dial(0), -17, "a second path between the same addresses");
}

void families(ServerTask& task) {
    if (task.options.other_family.empty()) {
        task.report.not_applicable("C21", "no address of the other family was given");
        return;
    }
    ClientPath path(task.lab, task.report, {task.options.other_family, {}});
    path.open_path(task.options.session);
    task.report.ok("C21", fmt::format("served at {} and {}; the default port is configuration",
                                      task.options.address, task.options.other_family));
}

// INFO_REQ as given has to end the path without an answer.
void info_ends_the_path(ServerTask& task, std::string_view id, const Octets& octets,
                        std::string_view what) {
    auto path = task.unconnected();
    if (!path->connect()) throw Stop{"the server refused a connection"};
    path->links[0]->send(octets);
    const bool settled = task.lab.wait([&] { return path->ended() || !path->info.empty(); });
    task.report.check(id, settled && path->info.empty(),
                      fmt::format("{}: {}", what, settled ? "INFO_RSP" : "the path stays"),
                      fmt::format("{}: the path ends", what));
    task.report.check(id, task.lab.wait([&] {
        return std::ranges::all_of(path->links, [](const auto& l) { return l->disconnected; });
    }),
                      fmt::format("{}: a connection stays", what), "every connection ends");
}

void info_requests(ServerTask& task) {
    const std::string& name = task.options.session;
    info_ends_the_path(task, "C33", info_request(name, 1), "type 1");
    Octets head = info_request(name);
    head.resize(271);
    info_ends_the_path(task, "C33", head, "271 bytes");
    info_ends_the_path(task, "C28", info_request("a/b"), "a name with /");
    info_ends_the_path(task, "C28", info_request("a.b"), "a name with .");
    if (task.options.gentle) {
        task.report.not_applicable("C28", "empty name: left out, it upsets a kernel server");
    } else {
        info_ends_the_path(task, "C28", info_request(""), "an empty name");
    }
    {
        auto early = task.unconnected();
        early->dial(0);
        early->links[0]->send(info_request(name));
        task.report.check("C27",
                          task.lab.wait([&] { return early->ended(); }) && early->info.empty(),
                          early->info.empty() ? "the path stays" : "INFO_RSP", "the path ends");
    }
    auto first = task.path();
    auto clash = task.unconnected();
    if (!clash->connect()) throw Stop{"the server refused a connection"};
    task.report.check("C28", !clash->inform(name), "a name in use was taken", "the path ends");
}

void info_responses(ServerTask& task) {
    auto path = task.path();
    const std::size_t regions = take(path->info, 2, 2);
    std::uint64_t sum = 0;
    bool whole = true;
    for (std::size_t i = 0; i < regions; ++i) {
        const Region region = region_at(path->info, 8 + 16 * i);
        whole = whole && region.bytes > 0 && region.bytes % path->chunk_bytes == 0;
        sum += region.bytes;
    }
    const std::uint64_t all = std::uint64_t{path->depth} * path->chunk_bytes;
    task.report.check("C29",
                      take(path->info, 0, 2) == 1 && take(path->info, 4, 4) == 0 && regions > 0 &&
                          path->depth % regions == 0 && whole && sum == all && all < 1ull << 32 &&
                          path->info.size() == 8 + 16 * regions &&
                          permit_bits(path->depth) + permit_bits(path->chunk_bytes) <= 28,
                      fmt::format("type {}, {} regions of {} bytes in {} bytes, depth {}, chunk {}",
                                  take(path->info, 0, 2), regions, sum, path->info.size(),
                                  path->depth, path->chunk_bytes),
                      "regions that divide the depth and are its chunks exactly");
}

void restarts(ServerTask& task) {
    if (task.options.restart.empty()) {
        task.report.not_applicable("C20", "no restart command was given");
        return;
    }
    const std::uint32_t before = task.path()->depth;
    if (std::system(task.options.restart.c_str()) != 0) throw Stop{"the restart command failed"};
    const std::uint32_t after = task.path()->depth;
    task.report.check("C20", before == after, fmt::format("{} became {}", before, after),
                      "the same queue depth");
}

}  // namespace

Endpoints ServerTask::second() const {
    const auto at = options.second_address.find('@');
    if (at == std::string::npos) return {options.second_address, {}};
    return {options.second_address.substr(at + 1), options.second_address.substr(0, at)};
}

std::unique_ptr<ClientPath> ServerTask::path(std::uint16_t connections) {
    // The name may still be that of a path that is on its way out.
    const Instant end = lab.now() + 3 * lab.options.patience;
    for (;;) {
        auto path = unconnected();
        path->greeting.cid_num = connections;
        if (path->connect() && path->inform(options.session)) return path;
        if (lab.now() > end) throw Stop{"the server does not serve a session any more"};
        lab.pause(100ms);
    }
}

Octets pattern(std::size_t bytes, unsigned salt) {
    Octets octets(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        octets[i] = static_cast<std::uint8_t>(i * 31 + (i >> 8) * 17 + salt * 101 + 7);
    }
    return octets;
}

std::vector<Scenario<ServerTask>> server_connect_scenarios() {
    return {{"versions", {"C12", "C13", "C14"}, versions},
            {"whole-answers", {"C17", "C22"}, whole_answers},
            {"not-connecting", {"C16"}, not_connecting},
            {"reconnect-counts", {"C18"}, reconnect_counts},
            {"same-addresses", {"C15"}, same_addresses},
            {"families", {"C21"}, families},
            {"info-requests", {"C27", "C28", "C33"}, info_requests},
            {"info-responses", {"C29"}, info_responses},
            {"restarts", {"C20"}, restarts}};
}

}  // namespace conformance
