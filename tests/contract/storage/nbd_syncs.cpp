// A storage on an NBD server that tells once of what it cannot write back, and forgets it.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/contract/storage/nbd_server.h"
#include "tests/skip.h"

using namespace rnbd;
using namespace rnbd::testing;

namespace {

// Its first flush fails, all others succeed. A write, or that flush, says by a file that it is at
// the server, and may have to wait for another file.
struct ForgetfulServer {
    enum class Waits { write, first_flush };

    explicit ForgetfulServer(Waits waits)
        : served({"nbdkit", "-f", "-U", "SOCKET", "eval", "thread_model=echo parallel",
                  "get_size=echo 1M", "can_write=exit 0", "can_flush=exit 0", "can_fua=echo none",
                  "pread=head -c $3 /dev/zero",
                  "pwrite=cat >/dev/null; touch " + write_came() +
                      (waits == Waits::write ? wait_for_gate() : ""),
                  "flush=mkdir " + flush_came() + " 2>/dev/null || exit 0" +
                      (waits == Waits::first_flush ? wait_for_gate() : "") +
                      "; echo EIO >&2; exit 1"}) {}

    std::string write_came() const { return folder.file("write"); }
    std::string flush_came() const { return folder.file("flush"); }
    std::string gate() const { return folder.file("gate"); }
    std::string wait_for_gate() const {
        return "; while [ -d " + folder.file("") + " -a ! -e " + gate() + " ]; do sleep 0.05; done";
    }
    void open_gate() const { std::ofstream(gate()).put('1'); }

    TemporaryFolder folder;
    ServedFile served;
};

void until(Bench& bench, const std::string& file) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!std::filesystem::exists(file)) {
        REQUIRE(std::chrono::steady_clock::now() < deadline);
        bench.reactor->run_once(std::chrono::milliseconds(5));
    }
}

void describe_write(TestRequest& write, const Pages& source) {
    write.operation = BlockOperation::write;
    write.bytes = 4096;
    write.data = source.bytes();
}

}  // namespace

TEST_CASE("nbd storage: a write with FUA that was there when another's flush failed fails, too") {
    try {
        ForgetfulServer forgetful(ForgetfulServer::Waits::first_flush);
        Bench bench;
        REQUIRE(!bench.open(on(*forgetful.served.server)));
        Pages pages(4096);
        TestRequest flush, write, later;
        flush.operation = BlockOperation::flush;
        bench.submit(flush);
        until(bench, forgetful.flush_came());
        describe_write(write, pages);
        write.force_unit_access = true;
        bench.submit(write);
        until(bench, forgetful.write_came());
        forgetful.open_gate();
        finish_in_time(bench, flush);
        CHECK(flush.error == std::errc::io_error);
        // Its own flush succeeds.
        finish_in_time(bench, write);
        CHECK(write.error == std::errc::io_error);
        describe_write(later, pages);
        later.force_unit_access = true;
        bench.submit(later);
        finish_in_time(bench, later);
        CHECK(!later.error);
    } catch (const Unavailable& unavailable) {
        skip(unavailable.reason);
    }
}

TEST_CASE("nbd storage: a write that is there when a flush fails is of a cache that was lost") {
    try {
        ForgetfulServer forgetful(ForgetfulServer::Waits::write);
        Bench bench;
        REQUIRE(!bench.open(on(*forgetful.served.server)));
        int losses = 0;
        bench.storage->when_writes_are_lost([&] { ++losses; });
        const std::uint64_t before = bench.storage->geometry().cache_epoch;
        Pages pages(4096);
        TestRequest write;
        const bool is_there = GENERATE(true, false);
        if (is_there) {
            describe_write(write, pages);
            bench.submit(write);
            until(bench, forgetful.write_came());
        }
        CHECK(bench.flush() == EIO);
        CHECK(losses == (is_there ? 1 : 0));
        CHECK((bench.storage->geometry().cache_epoch != before) == is_there);
        forgetful.open_gate();
        if (is_there) finish_in_time(bench, write);
        CHECK(!write.error);
        CHECK(bench.flush() == 0);
        CHECK(losses == (is_there ? 1 : 0));
    } catch (const Unavailable& unavailable) {
        skip(unavailable.reason);
    }
}
