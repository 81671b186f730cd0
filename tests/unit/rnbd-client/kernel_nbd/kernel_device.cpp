// A kernel that we play, against the real device, connections and reactor.
#include "rnbd-client/kernel_nbd/kernel_device.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "rnbd-client/nbd/wire.h"
#include "rtrs/null_tracer.h"
#include "tests/unit/rnbd-client/fake_volume.h"

using namespace rnbd;
using namespace std::chrono_literals;
using State = KernelDevice::State;
using Use = KernelNbd::Use;

namespace {

// A READ of 512 bytes at 4096.
std::array<std::byte, nbd::request_bytes> read_request() {
    std::array<std::byte, nbd::request_bytes> request{};
    rtrs::store_be32(request.data(), 0x25609513);
    rtrs::store_be64(request.data() + 8, 0x1122334455667788);
    rtrs::store_be64(request.data() + 16, 4096);
    rtrs::store_be32(request.data() + 24, 512);
    return request;
}
constexpr std::size_t answer_bytes = 16 + 512;

// False: the connection ended without an answer.
bool read_blocking(int fd) {
    const auto request = read_request();
    if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) != ssize_t(request.size()))
        return false;
    std::byte answer[answer_bytes]{};
    return ::recv(fd, answer, sizeof answer, MSG_WAITALL) == sizeof answer;
}

// What happens on the threads of KernelCall.
class PlayedKernel final : public KernelNbd {
  public:
    ~PlayedKernel() override { close_sockets(); }

    std::expected<Attached, std::string> attach(const KernelBinding& wanted,
                                                std::span<const int> sockets) override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !hangs; });
        ++attempts;
        if (refuses) return std::unexpected("no NBD driver");
        binding = wanted;
        for (const int fd : sockets) sockets_.push_back(::dup(fd));
        return Attached{wanted.index.value_or(3), std::max(left_blocks, wanted.block_bytes)};
    }
    // As Linux does since 6.11: it waits until nothing is in flight, and udev reads already.
    std::expected<void, std::string> settle(const KernelBinding&, std::uint32_t) override {
        if (udev_reads && !read_blocking(socket(0))) return std::unexpected("no answer");
        const std::scoped_lock lock(mutex_);
        if (!unsettled.empty()) {
            close_sockets();
            return std::unexpected(unsettled);
        }
        return {};
    }
    std::expected<void, std::string> resize(const KernelBinding& wanted, std::uint32_t) override {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !hangs; });
        if (refuses) return std::unexpected("no memory");
        binding = wanted;
        return {};
    }
    std::expected<Detached, std::string> detach(std::uint32_t, Use use) override {
        std::unique_lock lock(mutex_);
        ++detaches;
        changed_.wait(lock, [this] { return !hangs; });
        if (used && use != Use::ignore) return Detached::used;
        close_sockets();
        if (!unflushed.empty()) return std::unexpected(unflushed);
        return Detached::gone;
    }
    std::expected<void, std::string> cut(std::uint32_t) override {
        std::unique_lock lock(mutex_);
        ++cuts;
        changed_.wait(lock, [this] { return !cut_hangs; });
        close_sockets();
        hangs = false;
        awaits = 0;
        changed_.notify_all();
        return {};
    }
    std::string use_of(std::uint32_t index) const override {
        return used ? "/dev/nbd" + std::to_string(index) + " is mounted on /srv" : "";
    }
    bool awaits_answers(std::uint32_t) const override { return awaits > 0 && awaits-- > 0; }

    void go_on() {
        const std::scoped_lock lock(mutex_);
        hangs = cut_hangs = refuses = false;
        unsettled.clear();
        changed_.notify_all();
    }
    std::uint64_t size() {
        const std::scoped_lock lock(mutex_);
        return binding.size_bytes;
    }
    int socket(std::size_t index) {
        const std::scoped_lock lock(mutex_);
        return sockets_.at(index);
    }
    void close_sockets() {
        for (const int fd : sockets_) ::close(fd);
        sockets_.clear();
    }

    bool hangs = false, cut_hangs = false, refuses = false, used = false, udev_reads = false;
    std::uint32_t left_blocks = 0;  // of what an earlier process left
    std::string unsettled, unflushed;
    std::atomic<int> attempts = 0, detaches = 0, cuts = 0;
    mutable std::atomic<int> awaits = 0;  // for how many looks
    KernelBinding binding;

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<int> sockets_;
};

struct Fixture final : KernelDevice::Handler {
    explicit Fixture(KernelDeviceOptions options = {}) : reactor(*rtrs::Reactor::create()) {
        fake::settings() = {};
        fake::settings().reactor = reactor.get();
        world = std::make_unique<fake::World>();
        device = std::make_unique<Device>(world->volume(), shares, DeviceOptions{"disk", ""});
        options.identifier = "rnbd/s/v";
        options.retry_min = options.retry_max = 1ms;
        kernel_device = std::make_unique<KernelDevice>(NbdConnection::Environment{*reactor, tracer},
                                                       kernel, *device, options, *this);
    }
    ~Fixture() {
        if (kernel_device == nullptr) return;
        kernel_device->stop(Use::ignore);
        kernel->go_on();
        until([&] { return detached > 0; });
        kernel_device.reset();
        device.reset();
        world.reset();
    }
    template <typename Condition>
    void until(Condition condition) {
        for (int turn = 0; turn < 60'000 && !condition(); ++turn) reactor->run_once(1ms);
        REQUIRE(condition());
    }
    void until(State state) {
        until([&] { return kernel_device->state() == state; });
    }
    void on_kernel_detached(KernelDevice&) override { ++detached; }
    void on_kernel_used(KernelDevice&) override { ++refused; }

    std::unique_ptr<rtrs::Reactor> reactor;
    rtrs::NullTracer tracer;
    std::shared_ptr<PlayedKernel> kernel = std::make_shared<PlayedKernel>();
    std::unique_ptr<fake::World> world;
    PermitShares shares;
    std::unique_ptr<Device> device;
    std::unique_ptr<KernelDevice> kernel_device;
    int detached = 0, refused = 0;
};

// While it is there no thread can be made: none has room for such a stack.
class NoThreads {
  public:
    NoThreads() {
        constexpr std::size_t endless = std::size_t{1} << 47;
        pthread_attr_t attributes;
        REQUIRE(::pthread_getattr_default_np(&usual_) == 0);
        REQUIRE(::pthread_attr_init(&attributes) == 0);
        REQUIRE(::pthread_attr_setstacksize(&attributes, endless) == 0);
        REQUIRE(::pthread_setattr_default_np(&attributes) == 0);
        ::pthread_attr_destroy(&attributes);
    }
    ~NoThreads() {
        ::pthread_setattr_default_np(&usual_);
        ::pthread_attr_destroy(&usual_);
    }
    NoThreads(const NoThreads&) = delete;
    NoThreads& operator=(const NoThreads&) = delete;

  private:
    pthread_attr_t usual_;
};

// A READ of 512 bytes, answered with what the volume's memory has.
void read_a_block(Fixture& fixture, int fd) {
    const auto request = read_request();
    std::memset(fake::memory() + 4096, 0x5a, 512);
    REQUIRE(::send(fd, request.data(), request.size(), 0) == ssize_t(request.size()));
    std::byte answer[answer_bytes]{};
    std::size_t have = 0;
    fixture.until([&] {
        const auto got = ::recv(fd, answer + have, sizeof answer - have, MSG_DONTWAIT);
        if (got > 0) have += static_cast<std::size_t>(got);
        return have == sizeof answer;
    });
    CHECK(rtrs::load_be32(answer) == 0x67446698);
    CHECK(rtrs::load_be32(answer + 4) == 0);
    CHECK(rtrs::load_be64(answer + 8) == 0x1122334455667788);
    CHECK(answer[16] == std::byte{0x5a});
}

}  // namespace

TEST_CASE("kernel device: it is attached when the volume is open, and serves every socket") {
    Fixture fixture({.index = 7, .connections = 3});
    fixture.kernel_device->update();
    fixture.until(State::attached);
    CHECK(fixture.kernel_device->path() == "/dev/nbd7");
    CHECK(fixture.kernel_device->connections() == 3);
    CHECK(fixture.kernel->binding.identifier == "rnbd/s/v");
    CHECK(fixture.kernel->size() == 64u << 20);
    CHECK(fixture.kernel->binding.request_bytes_max == 63u * (128u << 10));
    CHECK((fixture.kernel->binding.flags & nbd::transmission_flag::send_flush) != 0);
    for (std::size_t i = 0; i < 3; ++i) read_a_block(fixture, fixture.kernel->socket(i));
}

TEST_CASE("kernel device: requests are answered while the kernel still settles it") {
    Fixture fixture;
    fixture.kernel->udev_reads = true;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    CHECK(fixture.kernel->attempts == 1);
}

TEST_CASE("kernel device: one that cannot be settled is tried again, from nothing") {
    Fixture fixture({.connections = 2});
    fixture.kernel->udev_reads = true;
    fixture.kernel->unsettled = "it keeps 1280 KiB";
    fixture.kernel_device->update();
    fixture.until([&] { return fixture.kernel->attempts >= 3; });
    fixture.until(State::failed);
    CHECK(fixture.kernel_device->reason() == "it keeps 1280 KiB");
    CHECK(fixture.kernel_device->path().empty());
    fixture.kernel->go_on();
    fixture.until(State::attached);
    CHECK(fixture.kernel_device->connections() == 2);
    read_a_block(fixture, fixture.kernel->socket(1));
}

TEST_CASE("kernel device: what comes of an attempt that was given up is cut off") {
    Fixture fixture;
    fixture.kernel->hangs = true;
    fixture.kernel_device->update();
    fixture.kernel_device->stop(Use::leave);
    fixture.kernel_device->cut();
    fixture.until([&] { return fixture.detached == 1; });
    SECTION("the device is still there to hear of it") {
        fixture.kernel->go_on();
        fixture.until([&] { return fixture.kernel->cuts == 1; });
    }
    SECTION("it is gone") {
        fixture.kernel_device.reset();
        fixture.device.reset();
        fixture.world.reset();
        fixture.kernel->go_on();
        fixture.until([&] { return fixture.kernel->cuts == 1; });
    }
    SECTION("so is the reactor") {
        fixture.kernel_device.reset();
        fixture.device.reset();
        fixture.world.reset();
        fixture.reactor.reset();
        fixture.kernel->go_on();
        while (fixture.kernel->cuts == 0) std::this_thread::sleep_for(1ms);
    }
    CHECK(fixture.kernel->attempts == 1);
    CHECK(fixture.detached == 1);
}

TEST_CASE("kernel device: nobody uses what the kernel has not") {
    Fixture fixture;
    fixture.kernel->used = true;
    CHECK(fixture.kernel_device->use().empty());
}

TEST_CASE("kernel device: a refusal is told, and tried again") {
    Fixture fixture;
    fixture.kernel->refuses = true;
    fixture.kernel_device->update();
    fixture.until([&] { return fixture.kernel->attempts >= 3; });
    CHECK(fixture.kernel_device->reason() == "no NBD driver");
    CHECK(fixture.kernel_device->path().empty());
    fixture.kernel->go_on();
    fixture.until(State::attached);
    CHECK(fixture.kernel_device->reason().empty());
}

TEST_CASE("kernel device: a kernel that hangs is told, and stops nobody") {
    Fixture fixture({.deadline = 5ms});
    fixture.kernel->hangs = true;
    fixture.kernel_device->update();
    fixture.until([&] { return !fixture.kernel_device->reason().empty(); });
    CHECK(fixture.kernel_device->reason() == "the kernel does not answer");
    fixture.kernel_device->stop(Use::leave);
    CHECK(fixture.detached == 0);
    fixture.kernel_device->cut();
    fixture.until([&] { return fixture.detached == 1; });
}

TEST_CASE("kernel device: a flush that hangs is cut off") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    fixture.kernel->hangs = true;
    fixture.kernel_device->stop(Use::leave);
    for (int turn = 0; turn < 5; ++turn) fixture.reactor->run_once(1ms);
    CHECK(fixture.detached == 0);
    fixture.kernel_device->cut();
    fixture.until([&] { return fixture.detached == 1; });
    CHECK(fixture.kernel_device->connections() == 0);
    CHECK(fixture.kernel_device->loss() == "/dev/nbd3 was cut off before it was flushed");
}

TEST_CASE("kernel device: its end waits for a thread to be had") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    auto no_threads = std::make_optional<NoThreads>();
    fixture.kernel_device->stop(Use::refuse);
    fixture.until([&] { return !fixture.kernel_device->reason().empty(); });
    CHECK(fixture.kernel_device->state() == State::detaching);
    CHECK(fixture.kernel_device->reason() == "there is no thread to call the kernel from");
    read_a_block(fixture, fixture.kernel->socket(0));
    SECTION("it comes") {
        no_threads.reset();
        fixture.until([&] { return fixture.detached == 1; });
        CHECK(fixture.kernel_device->loss().empty());
    }
    SECTION("it comes, and the end of the daemon asks again") {
        fixture.kernel->used = true;
        fixture.kernel_device->stop(Use::leave);
        no_threads.reset();
        fixture.until([&] { return fixture.detached == 1; });
        CHECK(fixture.kernel_device->left());
    }
    SECTION("it does not, and it may be used") {
        fixture.kernel_device->cut();
        CHECK(fixture.refused == 1);
        CHECK(fixture.kernel_device->state() == State::attached);
        no_threads.reset();
        read_a_block(fixture, fixture.kernel->socket(0));
        CHECK(fixture.kernel->detaches == 0);
    }
    SECTION("it does not, and the daemon ends") {
        fixture.kernel_device->stop(Use::leave);
        fixture.kernel_device->cut();
        fixture.until([&] { return fixture.detached == 1; });
        CHECK(fixture.kernel_device->left());
        CHECK(fixture.kernel_device->loss().empty());
    }
    SECTION("it does not, and it is to go by force") {
        fixture.kernel_device->stop(Use::ignore);
        fixture.kernel_device->cut();
        fixture.until([&] { return fixture.detached == 1; });
        CHECK(fixture.kernel_device->loss() == "/dev/nbd3 was cut off before it was flushed");
    }
    SECTION("somebody else detaches it") {
        fixture.kernel->close_sockets();
        fixture.until([&] { return fixture.detached == 1; });
        CHECK(fixture.kernel_device->loss() ==
              "/dev/nbd3 was detached by somebody else before it was flushed");
        CHECK(fixture.kernel->detaches == 0);
    }
    CHECK(fixture.kernel->cuts == 0);
}

TEST_CASE("kernel device: requests that nobody can answer do not stay behind with it") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    fixture.kernel->used = true;
    SECTION("the last answers are on their way") {
        fixture.kernel->awaits = 3;
        fixture.kernel_device->stop(Use::leave);
        fixture.until([&] { return fixture.detached == 1; });
        CHECK(fixture.kernel->awaits == 0);
        CHECK(fixture.kernel->cuts == 0);
        CHECK(fixture.kernel_device->loss().empty());
    }
    SECTION("none come") {
        fixture.kernel->awaits = std::numeric_limits<int>::max();
        fixture.kernel_device->stop(Use::leave);
        fixture.until([&] { return fixture.detached == 1; });
        CHECK(fixture.kernel->cuts == 1);
        CHECK(fixture.kernel_device->loss() == "/dev/nbd3 was cut off while it was used");
    }
    SECTION("none come, and the kernel does not let go") {
        fixture.kernel->awaits = std::numeric_limits<int>::max();
        fixture.kernel->cut_hangs = true;
        fixture.kernel_device->stop(Use::leave);
        fixture.until([&] { return fixture.kernel->cuts == 1; });
        fixture.kernel_device->cut();
        fixture.until([&] { return fixture.detached == 1; });
        fixture.kernel->go_on();
    }
    CHECK(fixture.kernel_device->left());
}

TEST_CASE("kernel device: what is cut off is not detached beside that") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    fixture.kernel->cut_hangs = true;
    {
        const NoThreads no_threads;
        fixture.kernel_device->stop(Use::ignore);
    }
    fixture.kernel_device->cut();
    fixture.until([&] { return fixture.kernel->cuts == 1; });
    for (int turn = 0; turn < 20; ++turn) fixture.reactor->run_once(1ms);
    fixture.kernel_device->stop(Use::ignore);
    CHECK(fixture.kernel->detaches == 0);
    SECTION("it is done") { fixture.kernel->go_on(); }
    SECTION("the kernel does not let go") { fixture.kernel_device->cut(); }
    fixture.until([&] { return fixture.detached == 1; });
    CHECK(fixture.kernel->detaches == 0);
    CHECK(fixture.kernel_device->loss() == "/dev/nbd3 was cut off before it was flushed");
}

TEST_CASE("kernel device: a kernel that does not take a size is not asked who uses it") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    fixture.kernel->hangs = fixture.kernel->used = true;
    fake::settings().geometry.size_bytes = 128u << 20;
    fixture.kernel_device->update();
    SECTION("it stays") {
        fixture.kernel_device->stop(Use::refuse);
        fixture.kernel_device->cut();
        CHECK(fixture.refused == 1);
        CHECK(fixture.kernel_device->state() == State::attached);
        fixture.kernel->go_on();
        fixture.until([&] { return fixture.kernel->size() == 128u << 20; });
        CHECK(fixture.kernel->detaches == 0);
        CHECK(fixture.kernel->cuts == 0);
    }
    SECTION("it is left behind") {
        fixture.kernel_device->stop(Use::leave);
        fixture.kernel_device->cut();
        fixture.until([&] { return fixture.detached == 1; });
        CHECK(fixture.kernel_device->left());
        CHECK(fixture.kernel->cuts == 0);
    }
    SECTION("by force it goes, and what was not flushed is told") {
        fixture.kernel_device->stop(Use::ignore);
        fixture.kernel_device->cut();
        fixture.until([&] { return fixture.detached == 1; });
        CHECK(fixture.kernel->cuts == 1);
        CHECK(fixture.kernel_device->loss() == "/dev/nbd3 was cut off before it was flushed");
    }
}

TEST_CASE("kernel device: what could not be flushed at its end is told") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    SECTION("it could") {}
    SECTION("it could not") { fixture.kernel->unflushed = "flushing failed"; }
    fixture.kernel_device->stop(Use::refuse);
    fixture.until([&] { return fixture.detached == 1; });
    CHECK(fixture.kernel_device->loss() == fixture.kernel->unflushed);
}

TEST_CASE("kernel device: the kernel is told of another size") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    fake::settings().geometry.size_bytes = 128u << 20;
    fixture.kernel_device->update();
    fixture.until([&] { return fixture.kernel->size() == 128u << 20; });
}

TEST_CASE("kernel device: a size that the kernel did not take is told to it again") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    fixture.kernel->refuses = true;
    fake::settings().geometry.size_bytes = 128u << 20;
    fixture.kernel_device->update();
    fixture.until([&] { return fixture.kernel_device->reason() == "no memory"; });
    fixture.kernel->go_on();
    fixture.until([&] { return fixture.kernel->size() == 128u << 20; });
    fixture.until([&] { return fixture.kernel_device->reason().empty(); });
}

TEST_CASE("kernel device: its blocks hold until the kernel has it no more") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    CHECK(fake::settings().blocks_limit == 512);
    fixture.kernel_device->stop(Use::ignore);
    fixture.until([&] { return fixture.detached > 0; });
    CHECK(fake::settings().blocks_limit == 0);
}

TEST_CASE("kernel device: one that is taken over has the blocks that its users know") {
    Fixture fixture;
    fixture.kernel->left_blocks = 4096;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    CHECK(fake::settings().blocks_limit == 4096);
    read_a_block(fixture, fixture.kernel->socket(0));
    fixture.kernel->close_sockets();
    fixture.kernel->left_blocks = 0;
    fixture.until([&] { return fixture.kernel->attempts == 2; });
    fixture.until(State::attached);
    CHECK(fake::settings().blocks_limit == 512);
}

TEST_CASE("kernel device: one that is used stays, unless that is ignored") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    CHECK(fixture.kernel_device->use().empty());
    fixture.kernel->used = true;
    CHECK(fixture.kernel_device->use() == "/dev/nbd3 is mounted on /srv");
    fixture.kernel_device->stop(Use::refuse);
    fixture.until([&] { return fixture.refused == 1; });
    CHECK(fixture.kernel_device->state() == State::attached);
    read_a_block(fixture, fixture.kernel->socket(0));
    SECTION("by force") { fixture.kernel_device->stop(Use::ignore); }
    SECTION("it stays without us") { fixture.kernel_device->stop(Use::leave); }
    fixture.until([&] { return fixture.detached == 1; });
}

TEST_CASE("kernel device: who would have it stay if it is used does not take back an end") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    fixture.kernel->used = fixture.kernel->hangs = true;
    fixture.kernel_device->stop(Use::leave);
    fixture.kernel_device->stop(Use::refuse);
    fixture.kernel->go_on();
    fixture.until([&] { return fixture.detached + fixture.refused == 1; });
    CHECK(fixture.detached == 1);
    CHECK(fixture.kernel_device->left());
}

TEST_CASE("kernel device: somebody else detaches it") {
    Fixture fixture;
    fixture.kernel_device->update();
    fixture.until(State::attached);
    const int before = fixture.kernel->attempts;
    fixture.kernel->close_sockets();
    fixture.until([&] { return fixture.kernel->attempts > before; });
    fixture.until(State::attached);
}
