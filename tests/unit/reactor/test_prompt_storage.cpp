// Work of files that begins inside a turn: submit_early(), read_now() and write_now().
#include <poll.h>
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

struct Pipe {
    Pipe() {
        int fds[2];
        REQUIRE(::pipe2(fds, O_CLOEXEC) == 0);
        out = Descriptor(fds[0]);
        in = Descriptor(fds[1]);
        REQUIRE(::fcntl(out, F_SETFL, O_NONBLOCK) == 0);
    }
    std::string readable() const {
        std::string text(64, 0);
        const ssize_t bytes = ::read(out, text.data(), text.size());
        text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
        return text;
    }
    // Of the ring's threads, which an older kernel leaves writing to pipes to: in a while.
    std::string soon(std::size_t bytes) const {
        std::string text = readable();
        pollfd news{out, POLLIN, 0};
        while (text.size() < bytes && ::poll(&news, 1, 60'000) == 1) text += readable();
        return text;
    }
    Descriptor out, in;
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
    const Pipe pipe;
    Recorded first, second;
    in_a_turn(*reactor, [&] {
        reactor->write(first, {pipe.in}, bytes_of(text), 0, 0);
        reactor->submit_early(2);
        CHECK(pipe.readable().empty());  // one is no group
        reactor->write(second, {pipe.in}, bytes_of(text), 0, 0);
        reactor->submit_early(2);
        CHECK(pipe.soon(10) == "wordswords");
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
    const Pipe pipe;
    Descriptor file = temporary_file(4096);
    CHECK(reactor->write_now(file, bytes_of(text), 0, 0) == std::nullopt);  // no turn
    Recorded written;
    const auto tried = [&] {
        reactor->write(written, {pipe.in}, bytes_of(text), 0, 0);
        reactor->submit_early(1);
        CHECK(pipe.readable().empty());
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
