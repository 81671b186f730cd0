// SCHED_BATCH while it pays: when, and how the kernel is told.
#include "rtrs/reactor/batch_scheduling.h"

#include <fcntl.h>
#include <liburing.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "rtrs/reactor/thread_scheduling.h"
#include "rtrs/reactor_group.h"
#include "tests/skip.h"
#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;
using namespace std::chrono_literals;

namespace {

// A thread whose runs are alike: each takes so long, waits so long before, and has so many
// requests.
struct Run {
    Duration length;
    Duration waited;
    std::uint64_t requests;
};
constexpr Run easy{200us, 100us, 16};   // behind a client that sends one by one
constexpr Run hard{300us, 4ms, 32};     // beside a program that computes
constexpr Run delayed{10us, 300us, 1};  // behind programs that compute for moments
constexpr Run seldom{100us, 20us, 1};   // with long sleeps between
constexpr Run beat{10us, 2ms, 0};       // no request: nobody waits

struct Thread {
    // How long it was of SCHED_BATCH meanwhile.
    Duration run(const Run& one, Duration time, Duration sleeps = 0ns) {
        Duration batch = 0ns;
        for (const Instant end = now + time; now < end;) {
            const Instant begin = now;
            ++figures.runs;
            // Of the usual policy it does not wait.
            if (scheduling.is_batch()) {
                figures.waited += one.waited;
                now += one.waited;
            }
            figures.requests += one.requests;
            now += one.length + sleeps;
            if (scheduling.is_batch()) batch += now - begin;
            if (scheduling.is_due(now)) scheduling.judge(now, figures);
        }
        return batch;
    }

    Instant now{1000h};
    BatchScheduling::Figures figures{};
    BatchScheduling scheduling;
};

int policy() { return ::sched_getscheduler(0); }

// Otherwise the case is skipped.
bool kernel_tells() {
    const bool tells = ThreadScheduling().open();
    if (!tells) rnbd::testing::skip("the kernel tells nothing of waiting for a processor");
    return tells;
}

// In a thread of its own, whose policy does not matter afterwards.
void aside(const std::function<void()>& what) { std::thread(what).join(); }

// Those of rings of other cases may still be there.
std::set<pid_t> ring_workers() {
    std::set<pid_t> found;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        if (name.starts_with("iou-wrk-")) found.insert(std::stoi(task.path().filename()));
    }
    return found;
}

}  // namespace

TEST_CASE("batch scheduling: a busy thread that does not wait long is of it") {
    Thread thread;
    CHECK(!thread.scheduling.is_batch());
    CHECK(thread.run(easy, 1s) > 980ms);
    CHECK(thread.run(easy, 10s) >= 10s);
}

TEST_CASE("batch scheduling: a thread that is seldom woken is not, and leaves it without a pause") {
    Thread thread;
    CHECK(thread.run(seldom, 10s, 5ms) == 0s);
    thread.run(easy, 1s);
    REQUIRE(thread.scheduling.is_batch());
    thread.run(seldom, 100ms, 20ms);
    CHECK(!thread.scheduling.is_batch());
    CHECK(thread.run(easy, 1s) > 900ms);
}

TEST_CASE("batch scheduling: beside programs that compute it is given up, ever more seldom tried") {
    const Run& run = GENERATE(std::cref(hard), std::cref(delayed)).get();
    Thread thread;
    const Duration first = thread.run(run, 10s);
    CHECK(first > 0s);
    CHECK(first < 200ms);
    thread.run(run, 120s);
    // By now once a minute.
    CHECK(thread.run(run, 5min) < 5 * 25ms);
    // And when nobody computes any more.
    thread.run(easy, BatchScheduling::pause_max);
    CHECK(thread.scheduling.is_batch());
    // What lasted long has earned a short pause.
    thread.run(easy, 2 * BatchScheduling::pause_max);
    thread.run(run, 100ms);
    CHECK(!thread.scheduling.is_batch());
    thread.run(easy, BatchScheduling::pause_min);
    CHECK(thread.scheduling.is_batch());
}

TEST_CASE("batch scheduling: what computes for a moment is no reason to leave") {
    Thread thread;
    thread.run(easy, 1s);
    for (int i = 0; i < 100; ++i) {
        thread.run(hard, 4ms);
        thread.run(easy, 20ms);
    }
    CHECK(thread.scheduling.is_batch());
    // Nor is waiting without a request.
    thread.run(beat, 100ms);
    CHECK(thread.scheduling.is_batch());
}

TEST_CASE("batch scheduling: the kernel is told, and tells what was waited") {
    if (!kernel_tells()) return;
    aside([] {
        ThreadScheduling thread;
        REQUIRE(thread.open());
        const auto before = thread.figures();
        REQUIRE(before);
        for (int i = 0; i < 20; ++i) std::this_thread::sleep_for(1ms);
        CHECK(thread.figures()->runs >= before->runs + 20);
        CHECK(thread.figures()->waited >= before->waited);
        REQUIRE(thread.use_batch(true));
        CHECK(policy() == SCHED_BATCH);
        REQUIRE(thread.use_batch(false));
        CHECK(policy() == SCHED_OTHER);
    });
}

TEST_CASE("batch scheduling: a policy that somebody has chosen stays") {
    aside([] {
        const sched_param none{};
        REQUIRE(::sched_setscheduler(0, SCHED_BATCH, &none) == 0);
        CHECK(!ThreadScheduling().open());
    });
}

TEST_CASE("batch scheduling: threads that were made for the ring meanwhile get the usual policy") {
    if (!kernel_tells()) return;
    aside([] {
        ThreadScheduling thread;
        REQUIRE(thread.open());
        REQUIRE(thread.use_batch(true));
        const std::set<pid_t> others = ring_workers();
        io_uring ring{};
        REQUIRE(io_uring_queue_init(4, &ring, 0) == 0);
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        char byte = 0;
        io_uring_sqe* const entry = io_uring_get_sqe(&ring);
        io_uring_prep_read(entry, ends[0], &byte, 1, 0);
        entry->flags |= IOSQE_ASYNC;
        REQUIRE(io_uring_submit(&ring) == 1);
        std::set<pid_t> workers = ring_workers();
        while (std::ranges::includes(others, workers)) workers = ring_workers();
        for (const pid_t worker : workers) {
            if (!others.contains(worker)) CHECK(::sched_getscheduler(worker) == SCHED_BATCH);
        }
        REQUIRE(thread.use_batch(false));
        for (const pid_t worker : workers) CHECK(::sched_getscheduler(worker) != SCHED_BATCH);
        REQUIRE(::write(ends[1], "x", 1) == 1);
        io_uring_cqe* done = nullptr;
        CHECK(io_uring_wait_cqe(&ring, &done) == 0);
        io_uring_queue_exit(&ring);
        ::close(ends[0]);
        ::close(ends[1]);
    });
}

TEST_CASE("batch scheduling: a busy reactor's thread is of it, if that was asked for") {
    if (!kernel_tells()) return;
    const bool asked = GENERATE(true, false);
    bool was = false;
    aside([&] {
        auto reactor = make_reactor();
        if (asked) reactor->set_batch_scheduling(true);
        auto [near, far] = unix_pair();
        // Sends a byte for each that it gets: the reactor sleeps in between.
        std::thread echo([&] {
            for (char byte = 0; ::recv(far, &byte, 1, 0) == 1;) {
                if (::send(far, &byte, 1, MSG_NOSIGNAL) != 1) break;
            }
        });
        std::byte byte{};
        Recorded received;
        const Instant end = reactor->now() + (asked ? 60s : 200ms);
        while (!was && reactor->now() < end) {
            RTRS_ASSERT(::send(near, &byte, 1, 0) == 1);
            reactor->recv_all(received, near, MutableBytes(&byte, 1));
            finish(*reactor, received);
            received.results.clear();
            was = policy() == SCHED_BATCH && reactor->statistics().batch_turns > 0;
        }
        CHECK((reactor->statistics().batch_turns > 0) == asked);
        ::shutdown(near, SHUT_RDWR);
        echo.join();
    });
    CHECK(was == asked);
}
