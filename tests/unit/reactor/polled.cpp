// The second ring: direct I/O whose end is looked for. A device that can be polled is in the
// guest of tests/vm/polled_io.py; here the kernel polls, or says that it cannot.

#include <cerrno>
#include <chrono>

#include "tests/skip.h"
#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t page = 4096;

struct Page {
    Page() : data(static_cast<std::byte*>(std::aligned_alloc(page, page))) {}
    ~Page() { std::free(data); }
    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;
    MutableBytes bytes() const { return {data, page}; }
    std::byte* data;
};

// Beside the test, where a file system is that knows direct I/O.
Descriptor direct_file() {
    char name[] = "polled.XXXXXX";
    const int made = ::mkstemp(name);
    REQUIRE(made >= 0);
    REQUIRE(::ftruncate(made, 64 * page) == 0);
    ::close(made);
    Descriptor file(::open(name, O_RDWR | O_DIRECT | O_CLOEXEC));
    ::unlink(name);
    return file;
}

std::unique_ptr<Reactor> polling_reactor() {
    auto reactor = make_reactor();
    REQUIRE(!reactor->polls_storage());
    REQUIRE(!reactor->prepare_polling());
    REQUIRE(reactor->polls_storage());
    return reactor;
}

// False, aloud: this kernel does not poll what the file is on.
bool polls(std::int32_t result) {
    if (result != -EOPNOTSUPP) return true;
    rnbd::testing::skip("this file system or its device cannot be polled");
    return false;
}

}  // namespace

TEST_CASE("reactor: what is polled for is written and read, or refused") {
    const Descriptor file = direct_file();
    if (file < 0) {
        rnbd::testing::skip("no direct I/O here");
        return;
    }
    auto reactor = polling_reactor();
    Page source;
    std::fill_n(source.data, page, std::byte{7});
    Recorded written;
    reactor->write_polled(written, file, source.bytes(), page);
    const std::int32_t result = finish(*reactor, written);
    CHECK(reactor->statistics().polled == 1);
    if (!polls(result)) return;
    REQUIRE(result == static_cast<std::int32_t>(page));
    Page target;
    REQUIRE(::pread(file, target.data, page, page) == static_cast<ssize_t>(page));
    CHECK(std::equal(target.data, target.data + page, source.data));
    std::fill_n(target.data, page, std::byte{0});
    Recorded read;
    reactor->read_polled(read, file, target.bytes(), page);
    const std::int32_t got = finish(*reactor, read);
    if (!polls(got)) return;  // of a file that was new a write may have been
    REQUIRE(got == static_cast<std::int32_t>(page));
    CHECK(std::equal(target.data, target.data + page, source.data));
    Recorded beyond;
    reactor->read_polled(beyond, file, target.bytes(), 64 * page);
    CHECK(finish(*reactor, beyond) == 0);
}

TEST_CASE("reactor: errors of what is polled for are handed on") {
    auto reactor = polling_reactor();
    Page target;
    Recorded read;
    reactor->read_polled(read, -1, target.bytes(), 0);
    CHECK(finish(*reactor, read) == -EBADF);
    // The page cache is not polled.
    Descriptor buffered = temporary_file(page);
    Recorded refused;
    reactor->read_polled(refused, buffered, target.bytes(), 0);
    CHECK(finish(*reactor, refused) == -EOPNOTSUPP);
}

TEST_CASE("reactor: more at once than the second ring has entries, and all else goes on beside") {
    auto reactor = make_reactor({.submission_entries = 8});
    REQUIRE(!reactor->prepare_polling());
    Descriptor buffered = temporary_file(page);
    Page target;
    std::vector<std::unique_ptr<Recorded>> many;
    bool posted = false;
    reactor->post([&] { posted = true; });
    for (int i = 0; i < 100; ++i) {
        many.push_back(std::make_unique<Recorded>());
        reactor->read_polled(*many.back(), buffered, target.bytes(), 0);
    }
    Recorded plain;
    reactor->read(plain, {buffered}, target.bytes(), 0);
    CHECK(finish(*reactor, plain) == static_cast<std::int32_t>(page));
    for (const auto& one : many) CHECK(finish(*reactor, *one) == -EOPNOTSUPP);
    while (!posted) reactor->run_once(1ms);
}

TEST_CASE("reactor: it can be destroyed with something polled for, which calls no handler") {
    const Descriptor file = direct_file();
    if (file < 0) {
        rnbd::testing::skip("no direct I/O here");
        return;
    }
    Page target;
    Recorded read;
    {
        auto reactor = polling_reactor();
        reactor->run_once(Duration::zero());
        reactor->read_polled(read, file, target.bytes(), 0);
    }
    CHECK(!read.finished());
}
