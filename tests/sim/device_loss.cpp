// Writes of an NBD device that go to the server in several pieces, many at a time, while the server
// loses its cache.
#include <catch2/catch.hpp>
#include <deque>
#include <vector>

#include "rnbd-client/device.h"
#include "tests/sim/volume_world.h"

using namespace simtest;

namespace {

struct Client final : DeviceClient {
    Client() : DeviceClient(Kind::nbd) {}
    bool leaving() noexcept override { return false; }
    void on_other_left() override {}
    void end_leaving() override {}
    void add_stalls(std::vector<DeviceStall>&) const override {}
};

class Load {
  public:
    Load(Volumes& world, Device& device, int writers) : world_(world), device_(device) {
        device_.join(client_);
        for (int i = 0; i < writers; ++i) requests_.emplace_back(*this);
    }
    ~Load() {
        stop();
        device_.leave(client_);
    }
    // Writes of two pieces without a pause, and a flush whenever none is under way.
    void run(Duration time) {
        const Instant end = world_.scene.world.now() + time;
        while (world_.scene.world.now() < end) {
            const std::uint32_t bytes = 2 * device_.permits().max_io_bytes();
            for (Request& request : requests_) {
                if (!request.busy) begin(request, nbd::Command::write, bytes);
            }
            if (!flush_.busy) begin(flush_, nbd::Command::flush, 0);
            world_.scene.world.run_for(100us);
        }
    }
    void stop() {
        CHECK(world_.until([&] {
            for (const Request& request : requests_) {
                if (request.busy) return false;
            }
            return !flush_.busy;
        }));
    }
    std::vector<std::error_code> take_flushes() { return std::exchange(flushes_, {}); }

  private:
    struct Request : DeviceRequest {
        explicit Request(Load& its_load) : DeviceRequest{}, load(its_load) {}
        Load& load;
        bool busy = false;
    };

    void begin(Request& request, nbd::Command command, std::uint32_t bytes) {
        request.nbd = {};
        request.nbd.command = command;
        request.nbd.length = bytes;
        std::vector<Permit> permits;
        while (permits.size() < device_.permits_for(request.nbd)) {
            auto permit = device_.permits().try_take();
            if (!permit) return;
            permits.push_back(std::move(*permit));
        }
        request.client = &client_;
        request.busy = true;
        request.done = [](DeviceRequest& done) {
            auto& ended = static_cast<Request&>(done);
            ended.load.ended(ended);
        };
        device_.attach(request, permits);
        device_.start(request);
    }
    void ended(Request& request) {
        if (request.nbd.command == nbd::Command::flush) {
            flushes_.push_back(request.error);
            if (request.tells_losses != 0) device_.told(client_, request.tells_losses);
        } else {
            CHECK_FALSE(request.error);
        }
        device_.release(request);
        request.busy = false;
    }

    Volumes& world_;
    Device& device_;
    Client client_;
    std::deque<Request> requests_;
    Request flush_{*this};
    std::vector<std::error_code> flushes_;
};

}  // namespace

TEST_CASE("device: one lost cache is told, and then no more, however much is written meanwhile") {
    auto options = quick_options(41);
    options.server.queue_depth = 128;
    Volumes v(options);
    v.features = Feature::epoch;
    v.start_server();
    v.start_client();
    REQUIRE(v.opened());
    PermitShares shares;
    const VolumeLosses& losses = v.user1->volume.losses();
    {
        Device device(v.user1->volume, shares, {.name = "vol", .description = ""});
        Load load(v, device, 32);
        v.server->delay = 2ms;
        load.run(20ms);
        for (const std::error_code answer : load.take_flushes()) CHECK_FALSE(answer);
        v.crash_server(SimHost::CrashSeen::by_reset);
        for (auto& [name, one] : v.exports) one.lose_cache();
        REQUIRE(v.until([&] { return v.user1->volume.state() != VolumeState::open; }));
        v.scene.server_host.restart();
        v.start_server();
        REQUIRE(v.opened());
        v.server->delay = 2ms;
        // Those that were between two pieces end within two answers, and the flushes that tell it.
        load.run(20ms);
        CHECK(losses.caches == 1);
        CHECK(losses.news <= 1 + 32);
        const auto told = load.take_flushes();
        CHECK(std::ranges::any_of(told, [](std::error_code answer) { return bool(answer); }));
        load.run(40ms);
        for (const std::error_code answer : load.take_flushes()) CHECK_FALSE(answer);
        CHECK(losses.caches == 1);
        load.stop();
    }
    v.end();
}
