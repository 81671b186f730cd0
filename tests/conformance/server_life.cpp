// A server under test: heartbeats, and what happens when paths go and come, C58..C68.

#include <algorithm>

#include "tests/conformance/server_task.h"

namespace conformance {
namespace {

using namespace std::chrono_literals;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// Times are told and only grossly wrong ones are a breach: machines under load are late.
void heartbeats(ServerTask& task) {
    const Duration interval = task.options.heartbeat_interval;
    auto path = task.path();
    const Duration mean = mean_interval(task.lab, path->heartbeats, interval);
    task.report.check("C58", mean > interval / 2, fmt::format("every {:.2f} s", seconds(mean)),
                      fmt::format("every {:.2f} s", seconds(interval)));
    task.report.ok("C58", fmt::format("every {:.2f} s", seconds(mean)));

    // Unanswered, but we are heard.
    path->answers_heartbeats = false;
    const Instant end = task.lab.now() + task.options.heartbeat_timeout + interval;
    while (task.lab.now() < end && !path->ended()) {
        path->links[0]->write_immediate({}, {}, heartbeat);
        task.lab.pause(interval / 2);
    }
    task.report.check("C60", !path->ended(), "a client that speaks was given up",
                      "any message is a sign of life");
    if (path->ended()) return;

    // Silence.
    const Instant silent = task.lab.now();
    const std::size_t before = path->heartbeats.size();
    const Duration timeout = task.options.heartbeat_timeout;
    const bool dead = task.lab.wait(2 * timeout + 2 * interval + 5s, [&] { return path->ended(); });
    const Duration took = task.lab.now() - silent;
    task.report.check("C60", dead && took > timeout / 2,
                      dead ? fmt::format("given up after {:.1f} s", seconds(took))
                           : "a silent client is never given up",
                      fmt::format("given up {:.0f} s after the last message", seconds(timeout)));
    if (dead) task.report.ok("C60", fmt::format("given up after {:.1f} s", seconds(took)));
    task.report.check(
        "C58", path->heartbeats.size() <= before + 1,
        fmt::format("{} heartbeats while none was answered", path->heartbeats.size() - before),
        "one");
}

// Dials the path again until the server takes it; how often it said -104 before.
unsigned come_back(ServerTask& task, ClientPath& path) {
    unsigned refusals = 0;
    path.greeting.flags = 1;
    const bool back = task.lab.wait(60s, [&] {
        path.links.clear();
        ++path.greeting.recon_cnt;
        if (path.connect()) return true;
        if (path.links.back()->rejected) ++refusals;
        task.lab.pause(50ms);
        return false;
    });
    if (!back) throw Stop{"the path cannot come back"};
    if (!path.inform(task.options.session)) throw Stop{"the path came back and was ended"};
    return refusals;
}

Outgoing write_of(std::uint32_t device, const Octets& data) {
    return {.cid = 1,
            .permit = 5,
            .user = BlockWords{.device_id = device,
                               .sector = 64,
                               .rw = 1,
                               .bytes = static_cast<std::uint32_t>(data.size())}
                        .octets(),
            .data_bytes = static_cast<std::uint32_t>(data.size()),
            .data = data};
}

void closed_devices(ServerTask& task) {
    auto path = task.path();
    const VolumeWords volume = path->volume(task.options.volume, 1);
    path->disconnect();
    come_back(task, *path);
    const Answer answer = path->io(BlockOp::read, volume.device_id, 0, 4096);
    task.report.check("C65", answer.came && answer.error == 107,
                      answer.came ? fmt::format("errno {}", answer.error) : "the path ended",
                      "107: the device was closed with the last path");
}

void drains(ServerTask& task) {
    if (task.options.slow_volume.empty()) {
        task.report.not_applicable("C64", "no slow volume was given");
        return;
    }
    auto path = task.path();
    const VolumeWords volume = path->volume(task.options.slow_volume, 1);
    const Octets data =
        pattern(4096, static_cast<unsigned>(task.lab.now().time_since_epoch().count()));
    path->submit(write_of(volume.device_id, data));
    task.lab.pause(task.lab.options.lookout);  // it has arrived
    path->disconnect();
    const unsigned refusals = come_back(task, *path);
    const VolumeWords again = path->volume(task.options.slow_volume, 1);
    const Answer read = path->io(BlockOp::read, again.device_id, 64, 4096);
    task.report.check("C64", read.came && read.error == 0 && read.data == data,
                      "the path was taken back before its write had ended",
                      "not before every operation of the old path has ended");
    task.report.check("C64", refusals > 0, "taken back at once", "-104 while the write runs");
    task.report.ok("C64", fmt::format("refused {} times before", refusals));
}

void one_at_a_time(ServerTask& task) {
    if (task.options.slow_volume.empty() || task.options.second_address.empty()) {
        task.report.not_applicable("C68", "needs a slow volume and a second address");
        return;
    }
    auto first = task.path();
    ClientPath second(task.lab, task.report, task.second());
    second.greeting.paths_uuid = first->greeting.paths_uuid;
    second.greeting.flags = 0;
    second.open_path(task.options.session);
    const VolumeWords volume = first->volume(task.options.slow_volume, 1);
    // How long one takes, without what else this machine does at times.
    Duration one = Duration::max();
    for (int i = 0; i < 3; ++i) {
        const Instant start = task.lab.now();
        first->ask(write_of(volume.device_id, pattern(4096, 1)));
        one = std::min(one, task.lab.now() - start);
    }
    if (one < 200ms) throw Stop{"the slow volume is not slow"};

    const Instant sent = task.lab.now();
    first->submit(write_of(volume.device_id, pattern(4096, 2)));
    task.lab.pause(one / 5);
    const Answer answer = second.ask(write_of(volume.device_id, pattern(4096, 3)));
    const Duration took = task.lab.now() - sent;
    // Beside the first both are over after 1.2 of it; behind it after 2.
    task.report.check("C68", answer.came && answer.error == 0 && took > one * 9 / 5,
                      fmt::format("the second ran beside the first: both took {:.2f} s, one takes "
                                  "{:.2f} s",
                                  seconds(took), seconds(one)),
                      "the second after the first");
    const Answer read = second.io(BlockOp::read, volume.device_id, 64, 4096);
    task.report.check("C68", read.came && read.data == pattern(4096, 3),
                      "the older write is on the medium", "the newer");
    if (first->ended()) task.report.ok("C68", "the first path was ended");
}

}  // namespace

std::vector<Scenario<ServerTask>> server_life_scenarios() {
    return {{"heartbeats", {"C58", "C60"}, heartbeats},
            {"closed-devices", {"C65"}, closed_devices},
            {"drains", {"C64"}, drains},
            {"one-at-a-time", {"C68"}, one_at_a_time}};
}

}  // namespace conformance
