// What the delaying storage adds. Where time matters it is virtual: nothing here waits for it.
#include <deque>
#include <fstream>

#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/storage/delay_storage.h"
#include "rtrs/base/timer_queue.h"
#include "tests/contract/storage/support.h"

using namespace rnbd;
using namespace rnbd::testing;
using namespace std::chrono_literals;

namespace {

class VirtualClock final : public rtrs::Clock {
  public:
    rtrs::Instant now() const noexcept override { return now_; }
    void run_for(rtrs::Duration duration) {
        const rtrs::Instant end = now_ + duration;
        while (queue_.next_deadline() && *queue_.next_deadline() <= end) {
            now_ = std::max(now_, *queue_.next_deadline());
            queue_.expire(now_);
        }
        now_ = end;
    }

  protected:
    void arm(rtrs::Timer& timer, rtrs::Instant deadline) override { queue_.arm(timer, deadline); }
    void disarm(rtrs::Timer& timer) noexcept override { queue_.disarm(timer); }

  private:
    rtrs::Instant now_{1s};
    rtrs::TimerQueue queue_;
};

// Notes what reaches it, in order, and completes when it is told to.
class Medium final : public Storage {
  public:
    explicit Medium(std::deque<BlockRequest*>& reached) : reached_(reached) {}
    const StorageGeometry& geometry() const noexcept override { return geometry_; }
    void submit(BlockRequest& request) override { reached_.push_back(&request); }
    void extents(ExtentsRequest& request) override {
        request.found = {StorageExtent{.bytes = request.bytes, .hole = true}};
        request.completed(request, {});
    }
    std::error_code check() noexcept override {
        return std::make_error_code(std::errc::no_such_file_or_directory);
    }
    std::string description() const override { return "medium"; }

  private:
    StorageGeometry geometry_{.size_bytes = 1u << 20};
    std::deque<BlockRequest*>& reached_;
};

struct Delayed {
    explicit Delayed(const DelayOptions& options)
        : storage(clock, deferred, std::make_unique<Medium>(reached), options) {}

    void submit(TestRequest& request, BlockOperation operation) {
        request.operation = operation;
        request.bytes = operation == BlockOperation::flush ? 0 : 512;
        request.finished = false;
        request.submitting = true;
        storage.submit(request);
        request.submitting = false;
    }
    void complete(std::error_code error = {}) {
        BlockRequest& request = *reached.front();
        reached.pop_front();
        request.completed(request, error);
    }

    VirtualClock clock;
    std::deque<BlockRequest*> reached;
    DeferredCompletions deferred{clock};
    DelayStorage storage;
};

}  // namespace

TEST_CASE("delay: it shows what it stands on") {
    Delayed d({});
    CHECK(d.storage.geometry().size_bytes == 1u << 20);
    CHECK(d.storage.check() == std::errc::no_such_file_or_directory);
    CHECK(d.storage.description() == "medium, delayed on purpose");
    ExtentsRequest question([](ExtentsRequest&, std::error_code error) { CHECK(!error); });
    question.bytes = 512;
    d.storage.extents(question);
    CHECK(question.found.at(0).hole);
}

TEST_CASE("delay: each kind of operation has its own, and all of the request gets through") {
    Delayed d({.read = 1ms, .write = 5ms, .flush = 20ms, .gate = {}, .gate_count = {}});
    TestRequest read, write, zeroes, flush;
    Pages pages(4096);
    write.data = pages.bytes();
    write.offset = 1024;
    write.force_unit_access = zeroes.no_unmap = zeroes.fast_only = true;
    d.submit(flush, BlockOperation::flush);
    d.submit(zeroes, BlockOperation::write_zeroes);
    d.submit(write, BlockOperation::write);
    d.submit(read, BlockOperation::read);
    CHECK(d.reached.empty());
    d.clock.run_for(1ms);
    REQUIRE(d.reached.size() == 1);
    CHECK(d.reached[0]->operation == BlockOperation::read);
    d.clock.run_for(4ms);
    REQUIRE(d.reached.size() == 3);
    for (const std::size_t i : {1, 2}) {
        const BlockRequest& reached = *d.reached[i];
        CHECK(reached.bytes == 512);
        CHECK(reached.no_unmap == (reached.operation == BlockOperation::write_zeroes));
        CHECK(reached.fast_only == (reached.operation == BlockOperation::write_zeroes));
        CHECK(reached.force_unit_access == (reached.operation == BlockOperation::write));
        if (reached.operation != BlockOperation::write) continue;
        CHECK(reached.data.data() == pages.data());
        CHECK(reached.offset == 1024);
    }
    d.clock.run_for(15ms);
    REQUIRE(d.reached.size() == 4);
    d.complete(std::make_error_code(std::errc::io_error));
    for (int i = 0; i < 3; ++i) d.complete();
    CHECK(!read.finished);
    d.clock.run_for(0ms);
    CHECK(read.error == std::errc::io_error);
    CHECK((write.finished && zeroes.finished && flush.finished));
    CHECK((!write.error && !zeroes.error && !flush.error));
}

TEST_CASE("delay: what its storage knows of a failure gets through, of this one alone") {
    const auto when = GENERATE(DelayOptions::When::before, DelayOptions::When::after);
    Delayed d({.write = 5ms, .when = when, .gate = {}, .gate_count = {}});
    for (const bool alone : {true, false}) {
        TestRequest write;
        d.submit(write, BlockOperation::write);
        d.clock.run_for(5ms);
        CHECK(!d.reached.front()->failed_alone);
        d.reached.front()->failed_alone = alone;
        d.complete(std::make_error_code(std::errc::no_space_on_device));
        d.clock.run_for(5ms);
        REQUIRE(write.finished);
        CHECK(write.failed_alone == alone);
    }
}

TEST_CASE("delay: one of every few is later than the others") {
    Delayed d({.every = 3, .by = 100ms, .gate = {}, .gate_count = {}});
    std::deque<TestRequest> requests(7);
    for (TestRequest& request : requests) d.submit(request, BlockOperation::write);
    CHECK(d.reached.size() == 5);
    d.clock.run_for(99ms);
    CHECK(d.reached.size() == 5);
    d.clock.run_for(1ms);
    CHECK(d.reached.size() == 7);
    while (!d.reached.empty()) d.complete();
    d.clock.run_for(0ms);
    for (const TestRequest& request : requests) CHECK(request.finished);
}

TEST_CASE("delay: afterwards, the medium has it and the answer is late") {
    Delayed d({.write = 5ms, .when = DelayOptions::When::after, .gate = {}, .gate_count = {}});
    TestRequest write;
    d.submit(write, BlockOperation::write);
    REQUIRE(d.reached.size() == 1);
    d.complete();
    d.clock.run_for(4ms);
    CHECK(!write.finished);
    d.clock.run_for(1ms);
    CHECK(write.finished);
}

TEST_CASE("delay: a gate holds writes for as long as its file exists") {
    TemporaryFolder folder;
    DelayOptions options{.write = 1ms, .gate = folder.file("gate"), .gate_count = {}};
    const auto when = GENERATE(DelayOptions::When::before, DelayOptions::When::after);
    options.when = when;
    const bool before = when == DelayOptions::When::before;
    Delayed d(options);
    TestRequest early, held, zeroes, read, flush, late;
    d.submit(early, BlockOperation::write);
    std::ofstream(options.gate).close();
    d.submit(held, BlockOperation::write);
    d.submit(zeroes, BlockOperation::write_zeroes);
    d.submit(read, BlockOperation::read);
    d.submit(flush, BlockOperation::flush);
    d.clock.run_for(1s);
    CHECK(d.reached.size() == (before ? 3u : 5u));
    while (!d.reached.empty()) d.complete();
    d.clock.run_for(1s);
    CHECK((early.finished && read.finished && flush.finished));
    CHECK((!held.finished && !zeroes.finished));
    REQUIRE(std::filesystem::remove(options.gate));
    d.submit(late, BlockOperation::write);
    d.clock.run_for(21ms);
    while (!d.reached.empty()) d.complete();
    d.clock.run_for(1ms);
    CHECK((held.finished && zeroes.finished && late.finished));
}

TEST_CASE("delay: a gate may be for reads, or for all") {
    TemporaryFolder folder;
    DelayOptions options{.gate = folder.file("gate"), .gate_count = {}};
    options.gate_operations = GENERATE(DelayOptions::Gate::reads, DelayOptions::Gate::all);
    const bool all = options.gate_operations == DelayOptions::Gate::all;
    Delayed d(options);
    std::ofstream(options.gate).close();
    TestRequest read, write, flush;
    d.submit(read, BlockOperation::read);
    d.submit(write, BlockOperation::write);
    d.submit(flush, BlockOperation::flush);
    CHECK(d.reached.size() == (all ? 0u : 2u));
    REQUIRE(std::filesystem::remove(options.gate));
    d.clock.run_for(20ms);
    CHECK(d.reached.size() == 3);
    while (!d.reached.empty()) d.complete();
    d.clock.run_for(0ms);
}

TEST_CASE("delay: a gate may hold the first few only, each time that it is there") {
    TemporaryFolder folder;
    DelayOptions options{.gate = folder.file("gate"), .gate_count = 2};
    Delayed d(options);
    for (int round = 0; round < 3; ++round) {
        std::ofstream(options.gate).close();
        std::deque<TestRequest> requests(4);
        for (TestRequest& request : requests) d.submit(request, BlockOperation::write);
        CHECK(d.reached.size() == 2);
        REQUIRE(std::filesystem::remove(options.gate));
        d.clock.run_for(20ms);
        CHECK(d.reached.size() == 4);
        while (!d.reached.empty()) d.complete();
        d.clock.run_for(0ms);
        for (const TestRequest& request : requests) CHECK(request.finished);
    }
}
