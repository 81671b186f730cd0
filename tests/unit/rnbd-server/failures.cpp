// What the log says of requests that a storage has failed.
#include "tests/unit/rnbd-server/by_hand.h"
#include "tests/unit/rnbd-server/export_fixtures.h"
#include "tests/unit/rnbd-server/said.h"

using namespace rnbd;
using namespace rnbd::told;
using namespace rnbd::testing;

TEST_CASE("failures: two errors in turn are a line each") {
    with_nbd_export(
        {"nbdkit", "-f", "-U", "SOCKET", "eval", "get_size=echo 1M",
         "pread=echo ENOSPC >&2; exit 1", "can_write=exit 0",
         "pwrite=cat >/dev/null; echo EIO >&2; exit 1"},
        [&](ServedFile&, World& world) {
            ready(world, "vol");
            ByHand hand{.world = world, .answer = {}};
            const std::uint32_t id = hand.open("vol");
            const std::string text = said([&] {
                for (int i = 0; i < 5; ++i) {
                    CHECK(hand.ask(id, Operation::write) == EIO);
                    CHECK(hand.ask(id, Operation::read, rtrs::Direction::read) == ENOSPC);
                }
            });
            CHECK(lines_with(text, " failed: ") == 2);
        });
}

TEST_CASE("failures: zeroes that cannot be written fast are no news, others that cannot are") {
    with_nbd_export(
        {"nbdkit", "-f", "-U", "SOCKET", "eval", "get_size=echo 1M", "pread=head -c $3 /dev/zero",
         "can_write=exit 0", "pwrite=cat >/dev/null; echo EIO >&2; exit 1", "can_zero=exit 0",
         "can_fast_zero=exit 0", "zero=echo EOPNOTSUPP >&2; exit 1"},
        [&](ServedFile&, World& world) {
            ready(world, "vol");
            ByHand hand{.world = world, .answer = {}};
            const std::uint32_t id = hand.open("vol");
            const auto zero = [&](IoFlag flags) {
                return hand.ask(id, Operation::write_zeroes, rtrs::Direction::write, 4096, flags);
            };
            const std::string fast = said([&] { CHECK(zero(IoFlag::fast_zero) == EOPNOTSUPP); });
            CHECK(fast.empty());
            const std::string slow = said([&] { CHECK(zero(IoFlag::none) == EIO); });
            CHECK(lines_with(slow, " failed: ") == 1);
        });
}

TEST_CASE("failures: the log tells a write from the flush before it") {
    with_nbd_export(
        {"nbdkit", "-f", "-U", "SOCKET", "eval", "get_size=echo 1M", "pread=head -c $3 /dev/zero",
         "can_write=exit 0", "can_flush=exit 0",
         "pwrite=cat >/dev/null; [ $4 != 0 ] || { echo EIO >&2; exit 1; }",
         "flush=echo ENOSPC >&2; exit 1"},
        [&](ServedFile&, World& world) {
            ready(world, "vol");
            ByHand hand{.world = world, .answer = {}};
            const std::uint32_t id = hand.open("vol");
            const std::string plain = said([&] { CHECK(hand.ask(id, Operation::write) == EIO); });
            CHECK(plain.find("vol: write of 4096 bytes at 0 for host-a failed") !=
                  std::string::npos);
            const std::string behind = said([&] {
                CHECK(hand.ask(id, Operation::write, rtrs::Direction::write, 4096,
                               IoFlag::preflush) == ENOSPC);
            });
            CHECK(behind.find("vol: flush before a write of 4096 bytes at 0 for host-a failed") !=
                  std::string::npos);
        });
}

TEST_CASE("failures: a storage that fails each flush is told of, and not each time") {
    with_nbd_export(
        {"nbdkit", "-f", "-U", "SOCKET", "eval", "get_size=echo 1M", "pread=head -c $3 /dev/zero",
         "can_write=exit 0", "can_flush=exit 0", "pwrite=cat >/dev/null",
         "flush=echo EIO >&2; exit 1"},
        [&](ServedFile&, World& world) {
            Volume& volume = ready(world, "vol");
            ByHand hand{.world = world, .answer = {}};
            const std::string text = said([&] {
                for (int i = 0; i < 5; ++i) {
                    const std::uint32_t id = hand.open("vol");
                    CHECK(hand.ask(id, Operation::write) == 0);
                    CHECK(hand.ask(id, Operation::flush) == ENOTCONN);
                }
            });
            CHECK(volume.losses() == 5);
            CHECK(lines_with(text, "vol: flush for host-a failed: Input/output error") == 1);
            CHECK(lines_with(text, "may be lost") == 1);
            CHECK(volume.counters().last_error.errors == 5);
            CHECK(volume.counters().last_error.request == "flush");
        });
}
