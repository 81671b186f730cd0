// What only a storage on an NBD server does: it loses its connection, and gets another one.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/contract/storage/nbd_server.h"

using namespace rnbd;
using namespace rnbd::testing;

namespace {

const std::vector<std::string> nbdkit_file = {"nbdkit", "-f", "-U", "SOCKET", "file", "IMAGE"};

StorageOptions on(const NbdServer& server) {
    return {.kind = StorageOptions::Kind::nbd, .path = {}, .uri = server.uri()};
}

// Until the storage has noticed.
void wait_until_lost(Bench& bench) {
    while (bench.storage->trouble().empty()) {
        bench.reactor->run_once(std::chrono::milliseconds(10));
    }
}

// One that never ends fails the test.
void finish_in_time(Bench& bench, const TestRequest& request) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!request.finished && std::chrono::steady_clock::now() < deadline) {
        bench.reactor->run_once(std::chrono::milliseconds(10));
    }
    REQUIRE(request.finished);
}

// It refuses writes as one that is about to end, flushes slowly, and answers no read until it is
// told to.
struct LeavingServer {
    TemporaryFolder folder;
    ServedFile served{{"nbdkit", "-f", "-U", "SOCKET", "eval", "thread_model=echo parallel",
                       "get_size=echo 1M", "can_write=exit 0", "can_flush=exit 0",
                       "pread=while [ -d " + folder.file("") + " -a ! -e " + gate() +
                           " ]; do sleep 0.05; done; head -c $3 /dev/zero",
                       "pwrite=cat >/dev/null; echo ESHUTDOWN >&2; exit 1", "flush=sleep 0.1"}};

    std::string gate() const { return folder.file("gate"); }
    void answer_reads() const { std::ofstream(gate()).put('1'); }
    StorageOptions options() const {
        StorageOptions options = on(*served.server);
        options.nbd_hold_time = std::chrono::seconds(1);
        return options;
    }
    static void submit_read(Bench& bench, TestRequest& read, const Pages& target) {
        read.operation = BlockOperation::read;
        read.bytes = 4096;
        read.data = target.bytes();
        bench.submit(read);
    }
    static void submit_write(Bench& bench, TestRequest& write, const Pages& source) {
        write.operation = BlockOperation::write;
        write.bytes = 4096;
        write.data = source.bytes();
        bench.submit(write);
    }
};

template <typename Body>
void with_nbdkit(Body body) {
    try {
        ServedFile served(nbdkit_file);
        body(served);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

}  // namespace

TEST_CASE("nbd storage: what is asked while the server is away waits for it") {
    with_nbdkit([](ServedFile& served) {
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        Pages pages(4096);
        pages.fill(0x5a);
        REQUIRE(bench.write(0, pages.bytes()) == 0);
        REQUIRE(bench.flush() == 0);
        served.server->kill();
        wait_until_lost(bench);
        TestRequest write;
        write.operation = BlockOperation::write;
        write.offset = 8192;
        write.bytes = 4096;
        write.data = pages.bytes();
        bench.submit(write);
        for (int i = 0; i < 20; ++i) bench.reactor->run_once(std::chrono::milliseconds(5));
        REQUIRE(!write.finished);
        served.server->start();
        bench.finish(write);
        REQUIRE(!write.error);
        // Everything that was acknowledged before had been flushed.
        REQUIRE(bench.flush() == 0);
        pages.fill(0);
        REQUIRE(bench.read(0, pages.bytes()) == 0);
        REQUIRE(pages.all(0x5a, 0, 4096));
    });
}

TEST_CASE("nbd storage: what a server refuses because it ends is done by its successor") {
    with_nbdkit([](ServedFile& served) {
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        Pages pages(3 * 4096);
        pages.fill(0x5a);
        REQUIRE(bench.write(0, pages.bytes().first(4096)) == 0);
        REQUIRE(bench.flush() == 0);
        served.server->tell_to_end();
        std::vector<std::unique_ptr<TestRequest>> asked;
        const auto ask = [&](BlockOperation operation) {
            auto& request = *asked.emplace_back(std::make_unique<TestRequest>());
            const bool write = operation == BlockOperation::write;
            request.operation = operation;
            request.force_unit_access = write;
            if (operation != BlockOperation::flush) {
                request.offset = write ? 8192 : 0;
                request.bytes = 4096;
                request.data = pages.bytes().subspan(write ? 0 : 4096, 4096);
            }
            bench.submit(request);
        };
        // On a busy machine it may not have heard yet, and answer as ever: then it is asked again.
        const auto is_answered = [](const auto& request) { return request->finished; };
        while (!served.server->has_ended()) {
            if (std::ranges::all_of(asked, is_answered)) {
                ask(BlockOperation::write);
                ask(BlockOperation::read);
                ask(BlockOperation::flush);
            }
            bench.reactor->run_once(std::chrono::milliseconds(10));
        }
        served.server->start();
        for (const auto& request : asked) {
            bench.finish(*request);
            REQUIRE(!request->error);
        }
        pages.fill(0);
        REQUIRE(bench.read(0, pages.bytes()) == 0);
        REQUIRE(pages.all(0x5a, 0, 4096));
        REQUIRE(pages.all(0x5a, 8192, 4096));
    });
}

TEST_CASE(
    "nbd storage: what a server refuses so for ever fails in the end, and nothing else does") {
    try {
        // Each time the refusal comes first, and the reads that are sent again are done behind it.
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "--filter=error", "--filter=delay",
                           "file", "IMAGE", "error-pwrite=ESHUTDOWN", "error-pwrite-rate=100%",
                           "rdelay=50ms"});
        Bench bench;
        StorageOptions options = on(*served.server);
        options.nbd_hold_time = std::chrono::milliseconds(500);
        REQUIRE(!bench.open(options));
        Pages pages(4096);
        TestRequest write;
        write.operation = BlockOperation::write;
        write.bytes = 4096;
        write.data = pages.bytes();
        bench.submit(write);
        for (int round = 0; round < 300 && !write.finished; ++round) {
            TestRequest reads[4];
            Pages targets[4]{Pages(4096), Pages(4096), Pages(4096), Pages(4096)};
            for (int i = 0; i < 4; ++i) {
                reads[i].operation = BlockOperation::read;
                reads[i].offset = 4096;
                reads[i].bytes = 4096;
                reads[i].data = targets[i].bytes();
                bench.submit(reads[i]);
            }
            for (const TestRequest& read : reads) finish_in_time(bench, read);
        }
        REQUIRE(write.finished);
        CHECK(write.error == std::errc::io_error);
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (bench.read(4096, pages.bytes()) != 0) {
            REQUIRE(std::chrono::steady_clock::now() < deadline);
        }
        CHECK(bench.read(4096, pages.bytes()) == 0);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

TEST_CASE("nbd storage: what a server that leaves does not answer fails in the end, too") {
    try {
        LeavingServer leaving;
        Bench bench;
        REQUIRE(!bench.open(leaving.options()));
        Pages pages(4096);
        TestRequest read, write;
        std::array<TestRequest, 3> flushes;
        leaving.submit_read(bench, read, pages);
        for (TestRequest& flush : flushes) {
            flush.operation = BlockOperation::flush;
            bench.submit(flush);
        }
        leaving.submit_write(bench, write, pages);
        finish_in_time(bench, write);
        CHECK(write.error == std::errc::io_error);
        finish_in_time(bench, read);
        CHECK(read.error == std::errc::io_error);
        for (TestRequest& flush : flushes) finish_in_time(bench, flush);
        leaving.answer_reads();
        while (bench.read(0, pages.bytes()) != 0) continue;
        CHECK(bench.read(0, pages.bytes()) == 0);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

TEST_CASE("nbd storage: so does what was sent again to it before, and has had its time") {
    try {
        LeavingServer leaving;
        Bench bench;
        REQUIRE(!bench.open(leaving.options()));
        Pages pages(4096);
        TestRequest read, write;
        // On a slow machine the server may be back too late.
        do {
            leaving.submit_read(bench, read, pages);
            leaving.served.server->kill();
            wait_until_lost(bench);
            leaving.served.server->start();
            while (!bench.storage->trouble().empty()) {
                bench.reactor->run_once(std::chrono::milliseconds(10));
            }
            bench.reactor->run_once(std::chrono::milliseconds(10));
        } while (read.finished);
        const auto over = std::chrono::steady_clock::now() + 2 * leaving.options().nbd_hold_time;
        while (std::chrono::steady_clock::now() < over) {
            bench.reactor->run_once(std::chrono::milliseconds(10));
        }
        REQUIRE(!read.finished);
        leaving.submit_write(bench, write, pages);
        finish_in_time(bench, write);
        CHECK(write.error == std::errc::io_error);
        finish_in_time(bench, read);
        CHECK(read.error == std::errc::io_error);
        leaving.answer_reads();
        while (bench.read(0, pages.bytes()) != 0) continue;
        CHECK(bench.read(0, pages.bytes()) == 0);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

TEST_CASE("nbd storage: a server that was lost with what was not flushed is another epoch") {
    with_nbdkit([](ServedFile& served) {
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        TestRequest flush;
        int losses = 0;
        bench.storage->when_writes_are_lost([&] {
            ++losses;
            CHECK(!flush.finished);
        });
        const std::uint64_t before = bench.storage->geometry().cache_epoch;
        Pages pages(4096);
        REQUIRE(bench.write(0, pages.bytes()) == 0);
        served.server->kill();
        wait_until_lost(bench);
        flush.operation = BlockOperation::flush;
        bench.submit(flush);
        served.server->start();
        bench.finish(flush);
        CHECK(losses == 1);
        const std::uint64_t after = bench.storage->geometry().cache_epoch;
        CHECK(after != before);
        // That one lost nothing.
        served.server->kill();
        wait_until_lost(bench);
        served.server->start();
        REQUIRE(bench.flush() == 0);
        CHECK(losses == 1);
        CHECK(bench.storage->geometry().cache_epoch == after);
    });
}

TEST_CASE("nbd storage: a write that was under way when the server was lost fails") {
    try {
        ServedFile served(
            {"nbdkit", "-f", "-U", "SOCKET", "--filter=delay", "file", "IMAGE", "wdelay=3600"});
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        Pages pages(4096);
        TestRequest write;
        write.operation = BlockOperation::write;
        write.bytes = 4096;
        write.data = pages.bytes();
        bench.submit(write);
        for (int i = 0; i < 20; ++i) bench.reactor->run_once(std::chrono::milliseconds(5));
        REQUIRE(!write.finished);
        served.server->kill();
        bench.finish(write);
        REQUIRE(write.error == std::errc::io_error);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

TEST_CASE("nbd storage: flushes do not overlap, and those that came meanwhile share one") {
    try {
        // Each flush leaves a letter at its begin and at its end.
        const TemporaryFolder folder;
        const std::string path = folder.file("log");
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "eval", "thread_model=echo parallel",
                           "get_size=echo 1M", "pread=head -c $3 /dev/zero", "can_write=exit 0",
                           "can_flush=exit 0", "pwrite=cat >/dev/null",
                           "flush=printf b >>" + path + "; sleep 0.1; printf e >>" + path});
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        std::array<TestRequest, 4> flushes;
        for (TestRequest& flush : flushes) {
            flush.operation = BlockOperation::flush;
            bench.submit(flush);
        }
        for (TestRequest& flush : flushes) bench.finish(flush);
        for (const TestRequest& flush : flushes) CHECK(!flush.error);
        std::ifstream log(path);
        CHECK(std::string(std::istreambuf_iterator<char>(log), {}) == "bebe");
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

TEST_CASE("nbd storage: flushes that wait for another go on at the server that comes back") {
    try {
        const TemporaryFolder folder;
        const std::string gate = folder.file("gate");
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "eval", "thread_model=echo parallel",
                           "get_size=echo 1M", "pread=head -c $3 /dev/zero", "can_write=exit 0",
                           "can_flush=exit 0", "pwrite=cat >/dev/null",
                           "flush=while [ ! -e " + gate + " ]; do sleep 0.05; done"});
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        std::array<TestRequest, 4> flushes;
        for (TestRequest& flush : flushes) {
            flush.operation = BlockOperation::flush;
            bench.submit(flush);
        }
        for (int i = 0; i < 20; ++i) bench.reactor->run_once(std::chrono::milliseconds(5));
        served.server->kill();
        wait_until_lost(bench);
        std::ofstream(gate).put('1');
        served.server->start();
        for (TestRequest& flush : flushes) bench.finish(flush);
        for (const TestRequest& flush : flushes) CHECK(!flush.error);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

TEST_CASE("nbd storage: what a silent server does not answer fails when it is given up") {
    try {
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "--filter=delay", "file", "IMAGE",
                           "rdelay=3600", "delay-trim=3600"});
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        CHECK(bench.storage->give_up().empty());
        Pages pages(4096);
        // Nothing is in flight: it goes on, and this one is acknowledged and not flushed.
        REQUIRE(bench.write(0, pages.bytes()) == 0);
        TestRequest read, trim;
        read.operation = BlockOperation::read;
        read.bytes = 4096;
        read.data = pages.bytes();
        bench.submit(read);
        trim.operation = BlockOperation::discard;
        trim.bytes = 4096;
        bench.submit(trim);
        for (int i = 0; i < 20; ++i) bench.reactor->run_once(std::chrono::milliseconds(5));
        REQUIRE(!read.finished);
        REQUIRE(!trim.finished);
        const std::string what = bench.storage->give_up();
        CHECK(what.find("not answered fail (2)") != std::string::npos);
        CHECK(what.find("no flush has covered may be lost (1)") != std::string::npos);
        bench.finish(read);
        bench.finish(trim);
        CHECK(read.error == std::errc::io_error);
        CHECK(trim.error == std::errc::io_error);
        // The server is there, but it has been given up.
        CHECK(bench.flush() == EIO);
        CHECK(bench.write(0, pages.bytes()) == EIO);
        CHECK(bench.storage->give_up().empty());
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

TEST_CASE("nbd storage: another size after a reconnection ends it") {
    with_nbdkit([](ServedFile& served) {
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        served.server->kill();
        wait_until_lost(bench);
        std::filesystem::resize_file(served.folder.file("image"), 2 * case_size_bytes);
        served.server->start();
        while (!bench.storage->check()) {
            bench.reactor->run_once(std::chrono::milliseconds(10));
        }
        Pages pages(4096);
        REQUIRE(bench.read(0, pages.bytes()) == EIO);
    });
}

TEST_CASE("nbd storage: a read that ends its server each time fails in the end") {
    try {
        ServedFile served(
            {"nbdkit", "-f", "-U", "SOCKET", "--filter=delay", "file", "IMAGE", "rdelay=3600"});
        Bench bench;
        StorageOptions options = on(*served.server);
        options.nbd_hold_time = std::chrono::milliseconds(300);
        REQUIRE(!bench.open(options));
        Pages pages(4096);
        TestRequest read;
        read.operation = BlockOperation::read;
        read.bytes = 4096;
        read.data = pages.bytes();
        bench.submit(read);
        for (int round = 0; round < 100 && !read.finished; ++round) {
            for (int i = 0; i < 5; ++i) bench.reactor->run_once(std::chrono::milliseconds(5));
            served.server->kill();
            if (!read.finished) wait_until_lost(bench);
            served.server->start();
            while (!bench.storage->trouble().empty()) {
                bench.reactor->run_once(std::chrono::milliseconds(10));
            }
        }
        REQUIRE(read.finished);
        CHECK(read.error == std::errc::io_error);
        // The next one waits for a server again.
        TestRequest another;
        another.operation = BlockOperation::read;
        another.bytes = 4096;
        another.data = pages.bytes();
        bench.submit(another);
        served.server->kill();
        wait_until_lost(bench);
        CHECK(!another.finished);
        bench.finish(another);
        CHECK(another.error == std::errc::io_error);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

// Everything else of the server waits while a storage is opened.
TEST_CASE("nbd storage: a server that says nothing is not waited for") {
    TemporaryFolder folder;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    folder.file("silent").copy(address.sun_path, sizeof address.sun_path - 1);
    const int silent = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::bind(silent, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(silent, 64) == 0);
    Bench bench;
    // How often this thread slept for an open, the best of many: now and then a mutex makes it.
    const auto least_sleeps = [&](const auto& uri_of) {
        const auto sleeps_so_far = [] {
            rusage usage{};
            REQUIRE(::getrusage(RUSAGE_THREAD, &usage) == 0);
            return usage.ru_nvcsw;
        };
        long least = std::numeric_limits<long>::max();
        for (int i = 0; i < 20; ++i) {
            const long before = sleeps_so_far();
            StorageOpening begun;
            const auto opened = open_storage(
                *bench.reactor, *bench.deferred,
                {.kind = StorageOptions::Kind::nbd, .path = {}, .uri = uri_of(i)}, begun);
            least = std::min(least, sleeps_so_far() - before);
            REQUIRE(!opened);
            REQUIRE(opened.error().code == std::errc::operation_in_progress);
        }
        return least;
    };
#ifdef __SANITIZE_THREAD__
    constexpr long own_sleeps = 1;  // its pthread_create() waits until the thread runs
#else
    constexpr long own_sleeps = 0;
#endif
    const std::string socket = "?socket=" + folder.file("silent");
    CHECK(least_sleeps([&](int) { return "nbd+unix:///" + socket; }) <= own_sleeps);
    CHECK(least_sleeps([&](int i) { return "nbd+unix:///" + std::to_string(i) + socket; }) <=
          own_sleeps);
    ::close(silent);
}

TEST_CASE("nbd storage: an export whose requests are too small for a block is refused") {
    try {
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "--filter=blocksize-policy", "file",
                           "IMAGE", "blocksize-minimum=512", "blocksize-preferred=1024",
                           "blocksize-maximum=1024"});
        Bench bench;
        StorageOptions options = on(*served.server);
        options.logical_block_bytes = 4096;
        REQUIRE(bench.open(options) == std::errc::invalid_argument);
        CHECK(bench.last_text.find("at most 1024 bytes, less than block_size 4096") !=
              std::string::npos);
        REQUIRE(!bench.open(on(*served.server)));
        Pages pages(4096);
        CHECK(bench.read(0, pages.bytes()) == 0);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

TEST_CASE("nbd storage: what cannot be opened is explained") {
    with_nbdkit([](ServedFile& served) {
        Bench bench;
        StorageOptions options = on(*served.server);
        options.size_bytes = 1u << 20;
        REQUIRE(bench.open(options) == std::errc::invalid_argument);
        REQUIRE(bench.last_text.find("not the size") != std::string::npos);
        options = on(*served.server);
        options.uri = "nbd+unix:///?socket=" + served.folder.file("nobody");
        REQUIRE(bench.open(options) == std::errc::no_such_file_or_directory);
        served.server->kill();
        options.uri = "nbd+unix:///";
        REQUIRE(bench.open(options) == std::errc::invalid_argument);
    });
}
