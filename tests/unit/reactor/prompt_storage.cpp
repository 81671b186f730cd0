// Work of files that begins inside a turn: submit_early(), read_now() and write_now().
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <optional>

#include "rtrs/reactor_group.h"
#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;
using namespace std::chrono_literals;

namespace {

// A file to see whether what is prepared for it has begun. Not a pipe, which an older kernel polls
// first, and then writes to in a later turn.
struct Probe {
    bool has(const std::string& what) const {
        std::string found(what.size(), 0);
        return ::pread(file, found.data(), found.size(), 0) == static_cast<ssize_t>(found.size()) &&
               found == what;
    }
    bool untouched() const { return has(std::string(10, 0)); }
    // One of the ring's threads may do it: in a while.
    bool has_soon(const std::string& what) const {
        for (int i = 0; i < 60'000; ++i) {
            if (has(what)) return true;
            ::usleep(1000);
        }
        return false;
    }
    Descriptor file = temporary_file(4096);
};

void in_a_turn(Reactor& reactor, std::function<void()> what) {
    struct Task : TurnTask {
        explicit Task(std::function<void()> its_work) : TurnTask(&go), work(std::move(its_work)) {}
        static void go(TurnTask& task) { static_cast<Task&>(task).work(); }
        std::function<void()> work;
    } task(std::move(what));
    reactor.at_turn_end(task);
    reactor.run_once(0ms);
    REQUIRE(!task.linked());
}

const std::string text = "words";

}  // namespace

TEST_CASE("reactor: what is prepared is submitted inside a turn when it is a group") {
    auto reactor = make_reactor();
    reactor->run_once(0ms);  // what the reactor itself prepares has gone
    const Probe probe;
    Recorded first, second;
    in_a_turn(*reactor, [&] {
        reactor->write(first, {probe.file}, bytes_of(text), 0, 0);
        reactor->submit_early(2);
        CHECK(probe.untouched());  // one is no group
        reactor->write(second, {probe.file}, bytes_of(text), 5, 0);
        reactor->submit_early(2);
        CHECK(probe.has_soon("wordswords"));
        CHECK(!first.finished());  // no handler runs in here
        reactor->submit_early(1);  // nothing is left
    });
    CHECK(finish(*reactor, first) == 5);
    CHECK(finish(*reactor, second) == 5);
    CHECK(reactor->statistics().early_submits == 1);
}

TEST_CASE("reactor: what is read or written now is done at once, and says what was wrong") {
    auto reactor = make_reactor();
    Descriptor file = temporary_file(4096);
    in_a_turn(*reactor, [&] {
        CHECK(reactor->write_now(file, bytes_of(text), 100, RWF_DSYNC) == 5);
        std::byte found[5]{};
        CHECK(::pread(file, found, sizeof found, 100) == 5);
        CHECK(text_of(found) == text);
        std::byte again[5]{};
        CHECK(reactor->read_now(file, again, 100) == 5);
        CHECK(text_of(again) == text);
        CHECK(reactor->read_now(file, again, 4096) == 0);  // the end
        CHECK(reactor->read_now(-1, again, 0) == -EBADF);
        Descriptor read_only(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        CHECK(reactor->write_now(read_only, bytes_of(text), 0, 0) == -EBADF);
    });
    CHECK(reactor->statistics().early_writes == 2);
    CHECK(reactor->statistics().early_reads == 3);
}

TEST_CASE("reactor: files have to wait for the turn's end where that is wanted, or others wait") {
    auto reactor = make_reactor();
    reactor->run_once(0ms);
    const Probe probe;
    Descriptor file = temporary_file(4096);
    CHECK(reactor->write_now(file, bytes_of(text), 0, 0) == std::nullopt);  // no turn
    Recorded written;
    const auto tried = [&] {
        reactor->write(written, {probe.file}, bytes_of(text), 0, 0);
        reactor->submit_early(1);
        CHECK(probe.untouched());
        CHECK(reactor->write_now(file, bytes_of(text), 0, 0) == std::nullopt);
        std::byte found[5]{};
        CHECK(reactor->read_now(file, found, 0) == std::nullopt);
    };
    SECTION("switched off") {
        reactor->set_prompt_storage(false);
        in_a_turn(*reactor, tried);
        CHECK(finish(*reactor, written) == 5);
    }
    SECTION("in a group") {
        auto group = ReactorGroup::create(*reactor, {.members = 2});
        REQUIRE(group);
        in_a_turn(*reactor, tried);
        CHECK(finish(*reactor, written) == 5);
    }
    CHECK(reactor->statistics().early_submits == 0);
    CHECK(reactor->statistics().early_writes == 0);
}
