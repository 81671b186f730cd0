// How a storage on an NBD server is opened, or why not.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>

#include "rtrs/base/descriptor.h"
#include "rtrs/base/descriptors.h"
#include "tests/contract/storage/nbd_server.h"
#include "tests/skip.h"

using namespace rnbd;
using namespace rnbd::testing;

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

namespace {

// Leaves no descriptors to newcomers.
class FewDescriptors {
  public:
    FewDescriptors() {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
        const rlimit few{128, before_.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
        take_the_rest();
    }
    ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    FewDescriptors(const FewDescriptors&) = delete;
    FewDescriptors& operator=(const FewDescriptors&) = delete;
    void take_the_rest() {
        do {
            taken_.emplace_back(::open("/", O_PATH | O_CLOEXEC));
            REQUIRE(taken_.back());
        } while (rtrs::descriptors_left(taken_.back().get()).to_new > 0);
    }
    void give_some_back() { taken_.resize(taken_.size() - 4); }

  private:
    rlimit before_{};
    std::vector<rtrs::Descriptor> taken_;
};

}  // namespace

TEST_CASE("nbd storage: the last descriptors of the process are for links that come back") {
    with_nbdkit([](ServedFile& served) {
        Bench bench;
        Bench newcomer;
        REQUIRE(!bench.open(on(*served.server)));
        FewDescriptors few;
        REQUIRE(newcomer.open(on(*served.server)) == std::errc::too_many_files_open);
        CHECK(newcomer.last_text ==
              served.server->uri() + ": hardly any descriptors left (ulimit -n)");
        served.server->kill();
        wait_until_lost(bench);
        few.take_the_rest();
        served.server->start();
        Pages pages(4096);
        CHECK(bench.read(0, pages.bytes()) == 0);
        CHECK(newcomer.open(on(*served.server)) == std::errc::too_many_files_open);
        few.give_some_back();
        CHECK(!newcomer.open(on(*served.server)));
    });
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
        skip(unavailable.reason);
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

TEST_CASE("nbd storage: an export without a byte is refused for that") {
    try {
        ServedFile served({"nbdkit", "-f", "-U", "SOCKET", "null", "size=0"});
        Bench bench;
        REQUIRE(bench.open(on(*served.server)) == std::errc::invalid_argument);
        CHECK(bench.last_text == served.server->uri() + ": is empty");
    } catch (const Unavailable& unavailable) {
        skip(unavailable.reason);
    }
}
