#include "daemon/sockets/stream_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "daemon/sockets/unix_listener.h"

using namespace rnbd;

namespace {

// Says nothing, and is never idle.
class Silent final : public StreamConnection {
  public:
    explicit Silent(const Accepted& accepted) : StreamConnection(accepted) {}
    void begin() override { await_readable(); }

  private:
    void on_readable() override { end(); }
    void on_sent() override {}
    bool is_idle() const override { return false; }
};

class World {
  public:
    explicit World(std::size_t connections_max) {
        REQUIRE(::mkdtemp(folder_.data()) != nullptr);
        auto listener = listen_on_unix(path(), 0600, crowd);
        REQUIRE(listener);
        server_ =
            std::make_unique<StreamServer>(*reactor_, std::move(*listener), connections_max,
                                           [this](const StreamConnection::Accepted& accepted) {
                                               ++made;
                                               return std::make_unique<Silent>(accepted);
                                           });
    }
    ~World() {
        bool closed = false;
        server_->close([&] { closed = true; });
        while (!closed) turn();
        ::unlink(path().c_str());
        ::rmdir(folder_.c_str());
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    static constexpr int crowd = 100;

    std::vector<rtrs::Descriptor> connect_all() const {
        std::vector<rtrs::Descriptor> clients;
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, path().c_str());
        for (int i = 0; i < crowd; ++i) {
            clients.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
            REQUIRE(::connect(clients.back().get(), reinterpret_cast<sockaddr*>(&address),
                              sizeof address) == 0);
        }
        return clients;
    }
    void turn() { reactor_->run_once(std::chrono::seconds(1)); }

    int made = 0;

  private:
    std::string path() const { return folder_ + "/socket"; }

    std::string folder_ = "/tmp/rnbd-stream-XXXXXX";
    std::unique_ptr<rtrs::Reactor> reactor_ = std::move(rtrs::Reactor::create().value());
    std::unique_ptr<StreamServer> server_;
};

std::ptrdiff_t closed_of(const std::vector<rtrs::Descriptor>& clients) {
    return std::ranges::count_if(clients, [](const rtrs::Descriptor& client) {
        pollfd look{client.get(), 0, 0};
        return ::poll(&look, 1, 0) == 1 && (look.revents & POLLHUP) != 0;
    });
}

}  // namespace

TEST_CASE("stream server: of many newcomers at once a turn serves one") {
    World world(World::crowd);
    const auto clients = world.connect_all();
    while (world.made < World::crowd) {
        const int before = world.made;
        world.turn();
        REQUIRE(world.made <= before + 1);
    }
    CHECK(closed_of(clients) == 0);
}

TEST_CASE("stream server: of many that find no room a turn turns one away") {
    World world(1);
    const auto clients = world.connect_all();
    std::ptrdiff_t closed = 0;
    while (closed < World::crowd - 1) {
        const std::ptrdiff_t before = closed;
        world.turn();
        closed = closed_of(clients);
        REQUIRE(closed <= before + 1);
    }
    CHECK(world.made == 1);
}
