// What only a storage on an NBD server does: it loses its connection, and gets another one.
#include <array>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/contract/storage/nbd_server.h"
#include "tests/skip.h"

using namespace rnbd;
using namespace rnbd::testing;

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
        skip(unavailable.reason);
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
        skip(unavailable.reason);
    }
}

TEST_CASE("nbd storage: flushes that wait for another go on at the server that comes back") {
    try {
        const TemporaryFolder folder;
        const std::string gate = folder.file("gate");
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "eval", "thread_model=echo parallel",
                           "get_size=echo 1M", "pread=head -c $3 /dev/zero", "can_write=exit 0",
                           "can_flush=exit 0", "pwrite=cat >/dev/null",
                           // It outlives its server, but not the folder.
                           "flush=while [ -d " + folder.file("") + " -a ! -e " + gate +
                               " ]; do sleep 0.05; done"});
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
        skip(unavailable.reason);
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
        skip(unavailable.reason);
    }
}

TEST_CASE("nbd storage: another size after a reconnection ends it") {
    const bool flushed = GENERATE(true, false);
    with_nbdkit([=](ServedFile& served) {
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        Pages pages(4096);
        REQUIRE(bench.write(0, pages.bytes()) == 0);
        if (flushed) REQUIRE(bench.flush() == 0);
        served.server->kill();
        wait_until_lost(bench);
        std::filesystem::resize_file(served.folder.file("image"), 2 * case_size_bytes);
        served.server->start();
        while (!bench.storage->check()) {
            bench.reactor->run_once(std::chrono::milliseconds(10));
        }
        REQUIRE(bench.read(0, pages.bytes()) == EIO);
        // The parting flush, for which there is no server any more.
        const auto aside = bench.storage->flush_aside();
        REQUIRE(static_cast<bool>(aside) == !flushed);
        if (aside) CHECK(aside() == std::errc::io_error);
    });
}

namespace {

// A server that has flushes, trims and zeroes that are fast while files of these names are there,
// whenever somebody connects.
std::vector<std::string> able_while_there(const std::string& flush, const std::string& more) {
    const auto while_there = [](const std::string& file) {
        return "=test -e " + file + " || exit 3";
    };
    return {"nbdkit",
            "-f",
            "-U",
            "SOCKET",
            "eval",
            "get_size=echo " + std::to_string(case_size_bytes),
            "can_write=exit 0",
            "pread=head -c $3 /dev/zero",
            "pwrite=cat >/dev/null",
            "can_flush" + while_there(flush),
            "flush=exit 0",
            "can_trim" + while_there(more),
            "trim=exit 0",
            "can_zero=exit 0",
            "can_fast_zero" + while_there(more),
            "zero=exit 0"};
}

void connect_again(Bench& bench, NbdServer& server) {
    server.kill();
    wait_until_lost(bench);
    server.start();
}

}  // namespace

TEST_CASE("nbd storage: what the server cannot do after a reconnection is not supported") {
    TemporaryFolder folder;
    const std::string flush = folder.file("flush"), more = folder.file("more");
    for (const std::string& file : {flush, more}) std::ofstream{file};
    try {
        ServedFile served(able_while_there(flush, more));
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        for (const int expected : {0, EOPNOTSUPP, 0}) {
            CHECK(bench.discard(0, 65536) == expected);
            CHECK(bench.write_zeroes(0, 65536, Flag::fast) == expected);
            CHECK(bench.write_zeroes(0, 65536) == 0);
            if (!std::filesystem::remove(more)) std::ofstream{more};
            connect_again(bench, *served.server);
        }
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
}

TEST_CASE("nbd storage: a server that has a cache after a reconnection is another one") {
    TemporaryFolder folder;
    const std::string flush = folder.file("flush"), more = folder.file("more");
    try {
        ServedFile served(able_while_there(flush, more));
        Bench bench;
        REQUIRE(!bench.open(on(*served.server)));
        CHECK(!bench.storage->geometry().volatile_cache);
        connect_again(bench, *served.server);
        Pages pages(4096);
        REQUIRE(bench.read(0, pages.bytes()) == 0);
        std::ofstream{flush};
        connect_again(bench, *served.server);
        // It goes away, and is opened anew.
        REQUIRE(bench.read(0, pages.bytes()) == EIO);
        CHECK(bench.storage->check() == std::errc::no_such_device);
    } catch (const Unavailable& unavailable) {
        WARN("SKIPPED: " << unavailable.reason);
    }
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
        skip(unavailable.reason);
    }
}
