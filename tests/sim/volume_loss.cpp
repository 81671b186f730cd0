// What a volume says about acknowledged writes that its server has lost: the truth, once.
#include <set>

#include "rtrs/base/planted.h"
#include "tests/sim/volume_world.h"

using namespace simtest;
using namespace rnbd;

namespace {

// The test itself asks one thing at a time.
struct Asker {
    explicit Asker(RemoteVolume& its_volume) : volume(its_volume) {}

    void submit(VolumeIo io) {
        auto permit = volume.session().rtrs().try_take();
        REQUIRE(permit);
        // What User expects to read there.
        const std::uint64_t word = 1ull << 32 | io.offset / block;
        std::memcpy(permit->payload().data(), &word, sizeof word);
        ++pending;
        io.responded = [](void* self, Permit, std::error_code error) {
            auto& asker = *static_cast<Asker*>(self);
            --asker.pending;
            asker.answers.push_back(error.value());
        };
        io.context = this;
        volume.submit(std::move(*permit), io);
    }
    void write(std::uint64_t at = 0) {
        submit({.operation = VolumeOperation::write, .offset = at * block, .bytes = block});
    }
    void flush() { submit({.operation = VolumeOperation::flush}); }
    std::vector<int> take() { return std::exchange(answers, {}); }

    RemoteVolume& volume;
    int pending = 0;
    std::vector<int> answers;
};

enum class Crash : std::uint8_t { process, machine };

struct Losses final : Volumes {
    explicit Losses(std::uint64_t seed = 41, Feature its_features = Feature::epoch)
        : Volumes(quick_options(seed)) {
        features = its_features;
    }
    void begin() {
        start_server();
        start_client();
        REQUIRE(opened());
        asker.emplace(user1->volume);
    }
    void crash(Crash what) {
        crash_server(SimHost::CrashSeen::by_reset);
        if (what == Crash::machine) {
            for (auto& [name, one] : exports) one.lose_cache();
        }
        REQUIRE(until([&] { return user1->volume.state() != VolumeState::open; }));
    }
    void restart() {
        scene.server_host.restart();
        start_server();
        REQUIRE(opened());
    }
    void crash_and_restart(Crash what) {
        crash(what);
        restart();
    }
    std::vector<int> answers() {
        CHECK(until([&] { return asker->pending == 0; }));
        return asker->take();
    }
    std::vector<int> write_and_flush() {
        asker->write();
        CHECK(answers() == std::vector{0});
        asker->flush();
        return answers();
    }
    const VolumeLosses& losses() const { return user1->volume.losses(); }

    std::optional<Asker> asker;
};

}  // namespace

#ifndef RTRS_PLANTED

TEST_CASE("loss: acknowledged, not flushed, gone: the next flush fails, once") {
    Losses v;
    v.begin();
    v.asker->write(1);
    v.asker->write(2);
    CHECK(v.answers() == std::vector{0, 0});
    v.crash_and_restart(Crash::machine);
    CHECK(v.losses().caches == 1);
    CHECK(v.losses().writes == 2);
    CHECK(v.scene.recorder.said("2 acknowledged writes are lost"));
    v.asker->write(3);  // other requests are none the worse
    CHECK(v.answers() == std::vector{0});
    v.asker->flush();
    CHECK(v.answers() == std::vector{EIO});
    v.asker->flush();
    CHECK(v.answers() == std::vector{0});
    // The other volume had nothing to lose.
    CHECK(v.user2->volume.losses().caches == 0);
    SECTION("and again, when it happens again") {
        v.asker->write(1);
        CHECK(v.answers() == std::vector{0});
        v.crash_and_restart(Crash::machine);
        CHECK(v.losses().caches == 2);
        v.crash_and_restart(Crash::machine);  // untold so far, and nothing new
        CHECK(v.losses().caches == 2);
        v.asker->flush();
        v.asker->flush();  // begins before the other one has told
        CHECK(v.answers() == std::vector{EIO, EIO});
        v.asker->flush();
        CHECK(v.answers() == std::vector{0});
    }
    v.good_end();
}

TEST_CASE("loss: a process that is killed loses nothing") {
    Losses v;
    v.begin();
    v.asker->write();
    CHECK(v.answers() == std::vector{0});
    v.crash_and_restart(Crash::process);
    v.asker->flush();
    CHECK(v.answers() == std::vector{0});
    CHECK(v.losses().caches == 0);
    v.good_end();
}

TEST_CASE("loss: what was flushed is not lost") {
    Losses v;
    v.begin();
    CHECK(v.write_and_flush() == std::vector{0});
    v.crash_and_restart(Crash::machine);
    CHECK(v.losses().caches == 0);
    v.asker->flush();
    CHECK(v.answers() == std::vector{0});
    v.good_end();
}

TEST_CASE("loss: FUA is enough where the volume honours it") {
    Losses v;
    const bool honoured = GENERATE(false, true);
    const auto operation = GENERATE(VolumeOperation::write, VolumeOperation::flush);
    v.exports["vol1"].fua = honoured;
    v.begin();
    v.asker->submit({.operation = operation,
                     .force_unit_access = true,
                     .bytes = operation == VolumeOperation::write ? block : 0});
    CHECK(v.answers() == std::vector{0});
    v.crash_and_restart(Crash::machine);
    v.asker->flush();
    const bool lost = operation == VolumeOperation::write && !honoured;
    CHECK(v.answers() == std::vector{lost ? EIO : 0});
    v.good_end();
}

TEST_CASE("loss: a flush covers what was acknowledged before it was submitted, not more") {
    Losses v;
    v.begin();
    v.asker->write(1);
    CHECK(v.answers() == std::vector{0});
    v.server->delay = 500ms;
    v.asker->flush();
    v.scene.world.run_for(1ms);
    v.server->delay = 0ms;
    v.asker->write(2);
    CHECK(v.until([&] { return v.asker->pending == 1; }));
    CHECK(v.answers() == std::vector{0, 0});
    v.crash_and_restart(Crash::machine);
    CHECK(v.losses().writes == 1);
    v.asker->flush();
    CHECK(v.answers() == std::vector{EIO});
    v.good_end();
}

TEST_CASE("loss: flushes that waited over the reopening fail, and have told it") {
    Losses v;
    v.begin();
    v.asker->write();
    CHECK(v.answers() == std::vector{0});
    SECTION("in flight") {
        v.server->delay = 500ms;
        v.asker->flush();
        v.asker->flush();
        v.scene.world.run_for(1ms);
        v.crash(Crash::machine);
    }
    SECTION("submitted meanwhile") {
        v.crash(Crash::machine);
        v.asker->flush();
        v.asker->flush();
    }
    CHECK(v.asker->pending == 2);
    v.restart();
    CHECK(v.answers() == std::vector{EIO, EIO});
    CHECK(v.losses().caches == 1);
    v.asker->flush();
    CHECK(v.answers() == std::vector{0});
    v.good_end();
}

TEST_CASE("loss: a flush from before the write does not tell of it") {
    Losses v;
    v.begin();
    v.server->delay = 500ms;
    v.asker->flush();
    v.scene.world.run_for(1ms);
    v.server->delay = 0ms;
    v.asker->write();
    CHECK(v.until([&] { return v.asker->pending == 1; }));
    REQUIRE(v.asker->take() == std::vector{0});
    v.crash_and_restart(Crash::machine);
    CHECK(v.answers() == std::vector{0});
    CHECK(v.losses().caches == 1);
    v.asker->flush();
    CHECK(v.answers() == std::vector{EIO});
    v.good_end();
}

TEST_CASE("loss: writes that were not acknowledged are sent again, nothing is lost") {
    Losses v;
    v.begin();
    v.server->delay = 500ms;
    v.asker->write();
    v.scene.world.run_for(1ms);
    v.crash_and_restart(Crash::machine);
    CHECK(v.answers() == std::vector{0});
    CHECK(v.losses().caches == 0);
    v.asker->flush();
    CHECK(v.answers() == std::vector{0});
    v.good_end();
}

TEST_CASE("loss: without epochs nobody can tell") {
    SECTION("a server that does not know them") {
        Losses v(41, Feature::extents | Feature::fast_zero);
        v.begin();
        v.asker->write();
        CHECK(v.answers() == std::vector{0});
        v.crash_and_restart(Crash::machine);
        v.asker->flush();
        CHECK(v.answers() == std::vector{0});
        CHECK(v.losses().caches == 0);
        v.good_end();
    }
    SECTION("a server that does not know its own") {
        Losses v;
        v.begin();
        v.asker->write();
        CHECK(v.answers() == std::vector{0});
        v.crash(Crash::process);
        v.exports["vol1"].epoch = 0;
        v.restart();
        v.asker->flush();
        CHECK(v.answers() == std::vector{0});
        CHECK(v.losses().caches == 0);
        v.good_end();
    }
}

TEST_CASE("loss: an epoch that is known again is compared with the last one that was") {
    Losses v;
    v.begin();
    v.asker->write();
    CHECK(v.answers() == std::vector{0});
    v.features = Feature::none;
    v.crash_and_restart(Crash::process);
    const auto between = GENERATE(Crash::process, Crash::machine);
    v.features = Feature::epoch;
    v.crash_and_restart(between);
    v.asker->flush();
    CHECK(v.answers() == std::vector{between == Crash::machine ? EIO : 0});
    v.good_end();
}

TEST_CASE("loss: a write whose answer comes after the news of its loss is done again") {
    Losses v;
    v.begin();
    v.server->write_answer_delay = std::chrono::milliseconds(200);
    v.asker->write(1);
    REQUIRE(v.until([&] { return v.server->ios == 1; }));
    v.exports["vol1"].durable[1] = 0;
    v.exports["vol1"].lose_cache();
    v.server->forget("vol1");
    v.server->write_answer_delay = Duration{0};
    v.asker->write(2);  // refused, sent again to the new cache
    CHECK(v.answers() == std::vector{0, 0});
    CHECK(v.exports["vol1"].words[1] != 0);
    // What was not acknowledged is not lost.
    CHECK(v.losses().caches == 0);
    v.asker->flush();
    CHECK(v.answers() == std::vector{0});
    v.good_end();
}

TEST_CASE("loss: a device that its server closed and opened again has lost nothing") {
    Losses v;
    v.begin();
    v.asker->write();
    CHECK(v.answers() == std::vector{0});
    v.server->forget("vol1");
    v.asker->flush();
    CHECK(v.answers() == std::vector{0});
    CHECK(v.losses().caches == 0);
    v.good_end();
}

#endif

namespace {

// Writes and flushes at random, and knows for each write what it was told: nothing, that it is
// durable, or that it may be lost.
struct Judge {
    struct Write {
        std::uint64_t value = 0;
        std::uint64_t acknowledged_at = 0;  // step
        bool safe = false;                  // by FUA, or a flush from after it
        bool lost = false;                  // not safe when the machine crashed
        std::uint64_t told_at = 0;          // when a flush from after it has failed
    };
    struct Operation {
        Judge* judge = nullptr;
        std::optional<std::uint32_t> at;  // none: flush
        bool force_unit_access = false;
        std::uint64_t value = 0;
        std::uint64_t step = 0;  // when it was submitted
    };

    Judge(Volumes& its_world, RemoteVolume& its_volume)
        : world(its_world), volume(its_volume), one(its_world.exports["vol1"]) {}

    void some() {
        Random& random = world.scene.world.random();
        auto permit = volume.session().rtrs().try_take();
        if (!permit) return;
        Operation& operation = operations[static_cast<std::uint32_t>(permit->id())];
        operation = {.judge = this, .at = {}, .step = ++step};
        if (!random.chance(1, 6)) {
            const auto at = static_cast<std::uint32_t>(random.below(64));
            if (busy.contains(at)) return;
            busy.insert(at);
            operation.at = at;
            operation.value = 1'000'000 + step;
            operation.force_unit_access = random.chance(1, 5);
            std::memcpy(permit->payload().data(), &operation.value, sizeof operation.value);
        }
        ++pending;
        volume.submit(std::move(*permit),
                      {.operation = operation.at ? VolumeOperation::write : VolumeOperation::flush,
                       .force_unit_access = operation.force_unit_access,
                       .offset = std::uint64_t{operation.at.value_or(0)} * block,
                       .bytes = operation.at ? block : 0,
                       .responded =
                           [](void* context, Permit, std::error_code error) {
                               auto& done = *static_cast<Operation*>(context);
                               done.judge->done(done, error);
                           },
                       .context = &operation});
    }

    void done(const Operation& operation, std::error_code error) {
        --pending;
        ++step;
        if (!operation.at)
            return error ? flush_failed(operation, error) : flush_succeeded(operation);
        busy.erase(*operation.at);
        if (error) ++wrong;  // only flushes may fail
        history[*operation.at].push_back({.value = operation.value,
                                          .acknowledged_at = step,
                                          .safe = operation.force_unit_access && one.fua,
                                          .lost = gone.contains(operation.value)});
    }

    // Everything that was acknowledged before it is durable, or was reported.
    void flush_succeeded(const Operation& flush) {
        for (auto& [at, writes] : history) {
            std::uint64_t newest = 0;
            for (Write& write : writes) {
                if (write.acknowledged_at > flush.step) continue;
                write.safe = true;
                if (write.told_at == 0) newest = write.value;
            }
            if (newest > 0 && one.durable[at] < newest) ++wrong;
        }
    }
    // Only if something from before it was lost, and that had not been told when it was submitted.
    void flush_failed(const Operation& flush, std::error_code error) {
        if (error != std::errc::io_error) ++wrong;
        ++failed;
        bool justified = false;
        for (auto& [at, writes] : history) {
            for (Write& write : writes) {
                if (write.acknowledged_at > flush.step) continue;
                const bool untold = write.told_at == 0 || write.told_at >= flush.step;
                justified = justified || (write.lost && untold);
                if (write.told_at == 0) write.told_at = step;
            }
        }
        if (!justified) ++wrong;
    }
    // The machine crashes now.
    void note_lost() {
        for (auto& [at, writes] : history) {
            for (Write& write : writes) write.lost = write.lost || !write.safe;
        }
        // Done, and perhaps acknowledged in a message that is still under way.
        for (std::size_t i = 0; i < one.words.size(); ++i) {
            if (one.words[i] != one.durable[i]) gone.insert(one.words[i]);
        }
    }

    Volumes& world;
    RemoteVolume& volume;
    Export& one;
    std::uint64_t step = 0;
    int pending = 0;
    std::uint64_t wrong = 0, failed = 0;
    std::map<std::uint32_t, Operation> operations;
    std::map<std::uint32_t, std::vector<Write>> history;
    std::set<std::uint32_t> busy;
    std::set<std::uint64_t> gone;
};

struct Verdict {
    std::uint64_t wrong = 0, failed = 0, losses = 0;
};

Verdict judge_run(std::uint64_t seed) {
    Losses v(seed);
    v.exports["vol1"].fua = seed % 2 == 0;
    v.begin();
    Judge judge(v, v.user1->volume);
    Random& random = v.scene.world.random();
    for (int round = 0; round < 6; ++round) {
        v.server->delay = Duration(1 + random.below(2'000'000));
        for (int i = 0; i < 40; ++i) {
            if (judge.pending < 8) judge.some();
            v.scene.world.run_for(Duration(random.below(400'000)));
        }
        v.crash_server(SimHost::CrashSeen::by_reset);
        if (random.chance(2, 3)) {
            judge.note_lost();
            v.exports["vol1"].lose_cache();
        }
        for (int i = 0; i < 3; ++i) {
            v.scene.world.run_for(Duration(random.below(3'000'000)));
            judge.some();
        }
        v.restart();
    }
    CHECK(v.until([&] { return judge.pending == 0; }));
    const Verdict verdict{judge.wrong, judge.failed, v.user1->volume.losses().caches};
    v.end();
    return verdict;
}

}  // namespace

#ifdef RTRS_PLANTED

TEST_CASE("loss: a volume that forgets to fail its flushes is found out") {
    rtrs::planted_bug = rtrs::PlantedBug::flush_forgotten;
    std::uint64_t found = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) found += judge_run(seed).wrong;
    CHECK(found > 20);
    rtrs::planted_bug = rtrs::PlantedBug::none;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) CHECK(judge_run(seed).wrong == 0);
}

#else

TEST_CASE("loss: a flush that succeeds tells the truth, one that fails has a reason") {
    std::uint64_t failed = 0;
    std::uint64_t losses = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        const Verdict verdict = judge_run(seed);
        CHECK(verdict.wrong == 0);
        failed += verdict.failed;
        losses += verdict.losses;
    }
    CHECK(losses > 300);
    CHECK(failed > 300);
}

#endif
