// Connections, listeners and devices over real sockets, with a volume in memory below.
#include "rnbd-client/nbd/connection.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <stdexcept>

#include "rnbd-client/nbd/listener.h"
#include "tests/unit/rnbd-client/fake_volume.h"
#include "tests/unit/rnbd-client/nbd_bytes.h"

// allocation_counter.cpp
extern std::size_t allocations;

using namespace rnbd;
using namespace rnbd::nbd;
using namespace std::chrono_literals;

namespace {

std::string new_directory() {
    std::string path = std::filesystem::temp_directory_path() / "rnbd-nbd-XXXXXX";
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    return path;
}

struct Notes final : rtrs::Tracer {
    std::vector<std::string> lines;
    void trace(rtrs::TraceLevel, std::string_view, std::string_view,
               std::string_view text) override {
        lines.emplace_back(text);
    }
    bool has(std::string_view text) const {
        return std::ranges::any_of(
            lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
    }
};

// A reactor, one device on a Unix socket, and everything below it.
struct Server final : NbdListener::Handler {
    explicit Server(const fake::Settings& settings = {}, NbdConnectionOptions connection = {},
                    std::uint32_t connections_max = 256)
        : reactor(std::move(*rtrs::Reactor::create())), directory(new_directory()) {
        fake::settings() = settings;
        fake::settings().reactor = reactor.get();
        world = std::make_unique<fake::World>();
        permits = fake::permits_free();
        device = std::make_unique<Device>(world->volume(), shares, DeviceOptions{"disk", ""});
        exports = std::make_unique<NbdExports>(std::vector<Device*>{device.get()});
        NbdListenerOptions options{.address = *NbdAddress::parse("unix:" + directory + "/s"),
                                   .connections_max = connections_max,
                                   .connection = connection};
        listener = std::make_unique<NbdListener>(NbdConnection::Environment{*reactor, notes},
                                                 *exports, options, *this);
        REQUIRE(listener->open());
    }
    ~Server() {
        listener->close();
        listener->abort_connections(*device);
        while (!closed) {
            fake::complete();
            turn();
        }
        CHECK(fake::permits_free() == permits);
        CHECK_FALSE(std::filesystem::exists(directory + "/s"));
        listener.reset();
        device.reset();
        world.reset();
        std::filesystem::remove_all(directory);
    }
    void turn(rtrs::Duration wait = 1ms) { reactor->run_once(wait); }
    template <typename Done>
    void until(Done done) {
        for (int i = 0; i < 20000 && !done(); ++i) turn();
        REQUIRE(done());
    }
    void until_empty() {
        until([&] { return listener->connections().empty(); });
    }
    void on_address_free(NbdListener&) override {}
    void on_listener_closed(NbdListener&) override { closed = true; }
    void on_connection_gone(NbdListener&) override {}

    std::unique_ptr<rtrs::Reactor> reactor;
    std::string directory;
    Notes notes;
    std::unique_ptr<fake::World> world;
    PermitShares shares;
    std::unique_ptr<Device> device;
    std::unique_ptr<NbdExports> exports;
    std::unique_ptr<NbdListener> listener;
    std::uint32_t permits = 0;
    bool closed = false;
};

struct Reply {
    std::uint32_t error = 0;
    std::uint64_t error_offset = 0;
    Chunk type = Chunk::none;
    std::vector<std::byte> data;
    friend bool operator==(const Reply&, const Reply&) = default;
};

ByteString name_field(std::string_view name) {
    return ByteString().u32(static_cast<std::uint32_t>(name.size())).text(name);
}

enum class Style { simple, structured };

class Client {
  public:
    explicit Client(Server& server) : server_(server) {
        buffer_.reserve(1u << 20);
        fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string path = server.directory + "/s";
        std::memcpy(address.sun_path, path.data(), path.size());
        REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    }
    ~Client() { hang_up(); }
    void hang_up() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    void half_close() { ::shutdown(fd_, SHUT_WR); }

    void push(Bytes bytes) {
        while (!bytes.empty()) {
            const ssize_t sent =
                ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
            if (sent < 0 && errno != EAGAIN) return;
            // A server that cannot get rid of its answers takes no more requests.
            if (sent < 0) read_some();
            server_.turn(0ms);
        }
    }
    // What has come, until there are so many bytes; fewer at the end of the stream.
    std::vector<std::byte> pull(std::size_t bytes) {
        while (!ended_ && buffer_.size() < bytes) read_some();
        const auto end =
            buffer_.begin() + static_cast<std::ptrdiff_t>(std::min(bytes, buffer_.size()));
        std::vector<std::byte> taken(buffer_.begin(), end);
        buffer_.erase(buffer_.begin(), end);
        return taken;
    }
    // As pull(), without allocating.
    void skip(std::size_t bytes) {
        while (!ended_ && buffer_.size() < bytes) read_some();
        // Catch's own checks allocate.
        if (buffer_.size() < bytes) throw std::runtime_error("closed");
        buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(bytes));
    }
    bool wait_for_end() {
        while (!ended_) read_some();
        return buffer_.empty();
    }

    static ByteString hello(Style style) {
        ByteString bytes = ByteString().u32(3);
        if (style == Style::structured) {
            bytes.option(Option::structured_reply)
                .option(Option::set_meta_context,
                        name_field("disk").u32(1).add(name_field("base:allocation")));
        }
        return bytes.option(Option::go, name_field("disk").u16(0));
    }
    static std::size_t hello_answer_bytes(Style style) {
        return greeting_bytes + 32 + 20 + (style == Style::structured ? 20 + 39 + 20 : 0);
    }
    Client& greet(Style style = Style::simple) {
        style_ = style;
        push(hello(style));
        REQUIRE(pull(hello_answer_bytes(style)).size() == hello_answer_bytes(style));
        return *this;
    }

    static ByteString bytes_of(const Request& request) {
        std::array<std::byte, request_bytes> space{};
        emit_request(space.data(), request);
        ByteString bytes;
        for (const std::byte b : space) bytes.text(std::string(1, static_cast<char>(b)));
        return bytes;
    }
    std::uint64_t ask(Command command, std::uint64_t offset, std::uint32_t length,
                      std::uint16_t flags = 0, const ByteString& payload = {}) {
        const Request request{flags, command, ++cookie_, offset, length};
        asked_[cookie_] = request;
        push(bytes_of(request).add(payload));
        return cookie_;
    }
    // The next reply; an empty optional at the end of the stream.
    std::optional<std::pair<std::uint64_t, Reply>> next() {
        const auto start = pull(16);
        if (start.size() < 16) return std::nullopt;
        const std::uint64_t cookie = load_be64(start.data() + 8);
        REQUIRE(asked_.contains(cookie));
        const Request request = asked_[cookie];
        asked_.erase(cookie);
        Reply reply;
        if (load_be32(start.data()) == simple_reply_magic) {
            reply.error = load_be32(start.data() + 4);
            const bool has_data = request.command == Command::read && reply.error == 0;
            REQUIRE((style_ == Style::simple || !has_data));
            if (has_data) reply.data = pull(request.length);
            return std::pair(cookie, reply);
        }
        REQUIRE(load_be32(start.data()) == chunk_magic);
        REQUIRE(style_ == Style::structured);
        REQUIRE(load_be16(start.data() + 4) == chunk_flag_done);
        reply.type = static_cast<Chunk>(load_be16(start.data() + 6));
        const auto payload = pull(load_be32(pull(4).data()));
        switch (reply.type) {
            case Chunk::offset_data:
                REQUIRE(load_be64(payload.data()) == request.offset);
                reply.data.assign(payload.begin() + 8, payload.end());
                break;
            case Chunk::error_offset:
                reply.error_offset = load_be64(payload.data() + payload.size() - 8);
                [[fallthrough]];
            case Chunk::error:
                reply.error = load_be32(payload.data());
                break;
            default:
                reply.data = payload;
        }
        return std::pair(cookie, reply);
    }
    Reply run(Command command, std::uint64_t offset, std::uint32_t length, std::uint16_t flags = 0,
              const ByteString& payload = {}) {
        const std::uint64_t cookie = ask(command, offset, length, flags, payload);
        const auto reply = next();
        REQUIRE(reply);
        REQUIRE(reply->first == cookie);
        return reply->second;
    }

  private:
    static std::uint16_t load_be16(const std::byte* p) { return rtrs::load_be16(p); }
    static std::uint32_t load_be32(const std::byte* p) { return rtrs::load_be32(p); }
    static std::uint64_t load_be64(const std::byte* p) { return rtrs::load_be64(p); }
    void read_some() {
        server_.turn();
        std::byte space[65536];
        const ssize_t got = ::recv(fd_, space, sizeof space, MSG_DONTWAIT);
        if (got > 0) buffer_.insert(buffer_.end(), space, space + got);
        if (got == 0 || (got < 0 && errno != EAGAIN)) ended_ = true;
    }

    Server& server_;
    int fd_ = -1;
    Style style_ = Style::simple;
    std::vector<std::byte> buffer_;
    bool ended_ = false;
    std::uint64_t cookie_ = 0;
    std::map<std::uint64_t, Request> asked_;
};

ByteString pattern(std::uint32_t bytes, unsigned seed) {
    std::string text(bytes, 0);
    for (std::uint32_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(seed + i * 7 + i / 256);
    return ByteString().text(text);
}

fake::Settings small_depth(std::uint32_t depth, std::uint32_t io = 4096) {
    fake::Settings settings;
    settings.queue_depth = depth;
    settings.max_io_bytes = io;
    return settings;
}

std::uint32_t number(NbdError error) { return static_cast<std::uint32_t>(error); }

}  // namespace

TEST_CASE("connection: what is written is read, in any size, in both styles") {
    for (const Style style : {Style::simple, Style::structured}) {
        Server server(small_depth(64, 16384));
        Client client(server);
        client.greet(style);
        for (const std::uint32_t bytes : {512u, 4096u, 16384u, 16896u, 131072u, 1000u * 512}) {
            const auto data = pattern(bytes, bytes);
            CHECK(client.run(Command::write, 1024, bytes, 0, data).error == 0);
            CHECK(client.run(Command::read, 1024, bytes).data == data.bytes());
        }
        CHECK(client.run(Command::flush, 0, 0).error == 0);
        CHECK(client.run(Command::read, 0, 0).data.empty());
        CHECK(client.run(Command::write, 0, 0).error == 0);
        CHECK(client.run(Command::cache, 0, 65536).error == 0);
    }
}

TEST_CASE("connection: however the stream is cut, the answers are the same") {
    std::mt19937 random(99);
    for (int round = 0; round < 12; ++round) {
        ByteString stream = Client::hello(Style::simple);
        std::map<std::uint64_t, std::size_t> expected;
        std::size_t answers = 0;
        for (std::uint64_t cookie = 1; cookie <= 60; ++cookie) {
            // Each in its own place, since the order of execution is free.
            const std::uint64_t offset = cookie << 18;
            const std::uint32_t length = static_cast<std::uint32_t>(
                512 * (random() % 6 == 0 ? random() % 300 : random() % 12));
            Request request{0, Command::read, cookie, offset, length};
            switch (random() % 6) {
                case 0:
                    request.command = Command::flush;
                    break;  // with offset: EINVAL
                case 1:
                    request.length += 1;
                    break;  // EINVAL
                case 2:
                case 3:
                    request.command = Command::write;
                    break;
                case 4:
                    request.command = Command::write;
                    request.length += 7;
                    break;
                default:
                    break;
            }
            stream.add(Client::bytes_of(request));
            if (request.command == Command::write) stream.add(pattern(request.length, 1));
            const bool has_data = request.command == Command::read && request.length % 512 == 0;
            answers += simple_reply_bytes + (has_data ? request.length : 0);
            expected[cookie] = request.length;
        }
        stream.add(Client::bytes_of({0, Command::disconnect, 0, 0, 0}));
        Server server(small_depth(40, 8192));
        Client client(server);
        Bytes rest = stream;
        while (!rest.empty()) {
            const std::size_t most = random() % 3 == 0 ? 64 : 60000;
            const std::size_t now = std::min<std::size_t>(rest.size(), 1 + random() % most);
            client.push(rest.first(now));
            rest = rest.subspan(now);
        }
        const std::size_t all = Client::hello_answer_bytes(Style::simple) + answers;
        for (const std::string& line : server.notes.lines) UNSCOPED_INFO(line);
        CHECK(client.pull(all + 100).size() == all);
        CHECK(server.device->counters().of(Command::write).requests > 0);
    }
}

TEST_CASE("connection: requests beyond the permits wait and are all answered") {
    Server server(small_depth(4));
    Client client(server);
    client.greet();
    fake::settings().held = true;
    for (int i = 0; i < 50; ++i) client.ask(Command::read, 0, 512);
    // A share of half of them is less than the largest request: all three then.
    server.until([] { return fake::waiting() == 3; });
    fake::settings().held = false;
    fake::complete();
    for (int i = 0; i < 50; ++i) CHECK(client.next()->second.error == 0);
}

TEST_CASE("connection: a device whose requests hang leaves permits to the session's others") {
    Server server;
    const Device other(server.world->volume(), server.shares, DeviceOptions{"other", ""});
    Client one(server), two(server);
    one.greet();
    two.greet();
    fake::settings().held = true;
    for (int i = 0; i < 60; ++i) {
        one.ask(Command::read, 0, 512);
        two.ask(Command::read, 0, 512);
    }
    server.until([] { return fake::waiting() == 31; });
    for (int i = 0; i < 10; ++i) server.turn();
    CHECK(fake::waiting() == 31);
    CHECK(fake::permits_free() == 32);
    fake::settings().held = false;
    fake::complete();
    for (int i = 0; i < 60; ++i) {
        CHECK(one.next()->second.error == 0);
        CHECK(two.next()->second.error == 0);
    }
}

TEST_CASE("connection: who has hung up and takes no answers holds newcomers up for a while only") {
    Server server({}, {.payload_timeout = 30ms, .send_timeout = 30ms, .requests_max = 20});
    Client gone(server);
    gone.greet();
    for (int i = 0; i < 40; ++i) gone.ask(Command::read, 0, 131072);
    gone.half_close();
    Client next(server);
    next.greet();
    CHECK(next.run(Command::read, 0, 512).error == 0);
    CHECK(server.notes.has("has hung up and does not take its answers"));
}

TEST_CASE("connection: two clients with requests of all permits do not wait for each other") {
    Server server(small_depth(5));
    Client one(server), two(server);
    one.greet();
    two.greet();
    const std::uint32_t most = 4 * 4096;
    for (int i = 0; i < 20; ++i) {
        one.ask(Command::write, 0, most, 0, pattern(most, 3));
        two.ask(Command::read, 1 << 20, most);
        one.ask(Command::read, 0, 4096);
        two.ask(Command::write, 1 << 20, 8192, 0, pattern(8192, 5));
    }
    for (int i = 0; i < 40; ++i) {
        CHECK(one.next()->second.error == 0);
        CHECK(two.next()->second.error == 0);
    }
}

TEST_CASE("connection: more requests than places wait for one") {
    Server server({}, {.requests_max = 3});
    Client client(server);
    client.greet();
    fake::settings().held = true;
    for (int i = 0; i < 30; ++i) client.ask(Command::read, 0, 512);
    server.until([] { return fake::waiting() == 3; });
    CHECK(server.listener->connections()[0]->requests_in_flight() == 3);
    fake::settings().held = false;
    fake::complete();
    for (int i = 0; i < 30; ++i) CHECK(client.next()->second.error == 0);
}

TEST_CASE("connection: DISC answers what is in flight, then closes") {
    Server server;
    Client client(server);
    client.greet();
    fake::settings().held = true;
    client.ask(Command::read, 0, 4096);
    client.ask(Command::disconnect, 0, 0);
    server.until([&] { return server.notes.has("disconnected"); });
    CHECK(server.listener->connections().size() == 1);
    fake::complete();
    CHECK(client.next()->second.data.size() == 4096);
    CHECK(client.wait_for_end());
    server.until_empty();
}

TEST_CASE("connection: a client that vanishes costs its own requests, and the permits come home") {
    Server server;
    Client client(server);
    client.greet();
    fake::settings().held = true;
    for (int i = 0; i < 5; ++i) client.ask(Command::read, 0, 131072);
    client.ask(Command::write, 0, 65536, 0, pattern(1000, 1));
    server.until([] { return fake::waiting() == 5; });
    client.hang_up();
    server.until([&] { return server.notes.has("in the middle of a request"); });
    CHECK(server.listener->connections().size() == 1);
    fake::complete();
    server.until_empty();
    CHECK(fake::permits_free() == server.permits);
}

TEST_CASE("connection: a TRIM that waited goes by the limits that the volume has come back with") {
    Server server;
    fake::settings().held = true;
    Client gone(server);
    gone.greet();
    gone.ask(Command::write, 0, 4096, 0, pattern(4096, 1));
    server.until([] { return fake::waiting() == 1; });
    gone.hang_up();
    Client back(server);
    back.greet();
    back.ask(Command::trim, 0, 8u << 20);  // eight rounds
    server.until([&] { return server.device->left_behind().waiting == 1; });
    fake::settings().geometry.discard_bytes_max = 4u << 20;
    fake::log().clear();
    fake::complete();
    CHECK(fake::log().size() == 2);
    for (const auto& operation : fake::log()) CHECK(operation.io.bytes == 4u << 20);
    fake::complete();
    CHECK(back.next()->second.error == 0);
}

// qemu's reconnect-delay and the kernel's driver send again what a broken connection had in flight,
// and go on: the first attempt must not land after what is written then.
TEST_CASE("connection: what a client that has gone left in flight ends before what overlaps it") {
    Server server;
    fake::settings().held = true;
    Client live(server);
    live.greet();
    Client gone(server);
    gone.greet();
    gone.ask(Command::write, 4096, 8192, 0, pattern(8192, 1));
    gone.ask(Command::read, 65536, 4096);
    server.until([] { return fake::waiting() == 2; });
    gone.hang_up();
    Client back(server);
    back.greet();
    back.ask(Command::write, 8192, 4096, 0, pattern(4096, 2));
    back.ask(Command::read, 8192, 4096);
    server.until([&] { return server.device->left_behind().waiting == 2; });
    live.ask(Command::write_zeroes, 0, 65536);
    server.until([&] { return server.device->left_behind().waiting == 3; });
    CHECK(server.notes.has("leaves 1 changes in progress behind"));
    CHECK(server.device->left_behind().requests == 1);
    // What does not overlap goes on: elsewhere, over what was only read, and a flush.
    const auto elsewhere = back.ask(Command::write, 1u << 20, 4096, 0, pattern(4096, 3));
    live.ask(Command::write, 65536, 4096, 0, pattern(4096, 3));
    live.ask(Command::flush, 0, 0);
    server.until([] { return fake::waiting() == 5; });
    CHECK(server.device->left_behind().waiting == 3);
    fake::complete();
    CHECK(back.next()->first == elsewhere);
    CHECK(server.device->left_behind().requests == 0);
    CHECK(server.device->left_behind().waiting == 0);
    CHECK(fake::waiting() == 3);
    // In the order in which they came.
    CHECK(fake::log()[5].io.operation == VolumeOperation::write);
    CHECK(fake::log()[6].io.operation == VolumeOperation::read);
    CHECK(fake::log()[7].io.operation == VolumeOperation::write_zeroes);
    fake::complete();
    CHECK(back.next()->second.error == 0);
    CHECK(back.next()->second.data == pattern(4096, 2).bytes());
}

TEST_CASE("connection: a client that comes back waits until its broken connection is read") {
    // Three permits: most of what is sent stays in the socket.
    Server server(small_depth(4));
    fake::settings().held = true;
    Client gone(server);
    gone.greet();
    for (int i = 0; i < 20; ++i) gone.ask(Command::write, 0, 4096, 0, pattern(4096, 1));
    server.until([] { return fake::waiting() == 3; });
    gone.hang_up();
    Client back(server);
    back.greet();
    back.ask(Command::write, 0, 4096, 0, pattern(4096, 2));
    back.ask(Command::read, 0, 4096);
    // Some are never started: their client takes no answers.
    server.until([] {
        fake::complete();
        return fake::log().back().io.operation == VolumeOperation::read && fake::waiting() == 0;
    });
    CHECK(back.next()->second.error == 0);
    CHECK(back.next()->second.data == pattern(4096, 2).bytes());
    CHECK(server.listener->connections().size() == 1);
}

TEST_CASE("connection: two that break in waiting for each other's ends do not stand still") {
    Server server(small_depth(4));
    fake::settings().held = true;
    Client first(server), second(server), third(server);
    first.greet();
    second.greet();
    third.greet();
    first.ask(Command::write, 0, 4096, 0, pattern(4096, 1));
    second.ask(Command::write, 0, 4096, 0, pattern(4096, 2));
    first.hang_up();
    second.hang_up();
    third.ask(Command::read, 0, 4096);
    server.until([] {
        fake::complete();
        return fake::log().size() == 3 && fake::waiting() == 0;
    });
    CHECK(third.next()->second.error == 0);
}

TEST_CASE("connection: each client is told of a loss once, whoever flushed first") {
    Server server;
    Client first(server), second(server);
    first.greet();
    second.greet();
    CHECK(first.run(Command::flush, 0, 0).error == 0);
    fake::settings().losses.caches = 1;
    CHECK(first.run(Command::flush, 0, 0).error == number(NbdError::io));
    CHECK(first.run(Command::flush, 0, 0).error == 0);
    CHECK_FALSE(server.device->has_untold_losses());
    // Who comes later had nothing there to lose.
    Client late(server);
    late.greet();
    CHECK(late.run(Command::flush, 0, 0).error == 0);
    CHECK(second.run(Command::write, 0, 512, 0, pattern(512, 1)).error == 0);
    CHECK(second.run(Command::flush, 0, 0).error == number(NbdError::io));
    CHECK(second.run(Command::flush, 0, 0).error == 0);
    // The flush behind a FUA write of a volume that has no FUA.
    fake::settings().losses.caches = 2;
    fake::settings().geometry.force_unit_access = false;
    const auto data = pattern(512, 2);
    CHECK(late.run(Command::write, 0, 512, command_flag::fua, data).error == number(NbdError::io));
    CHECK(late.run(Command::write, 0, 512, command_flag::fua, data).error == 0);
}

TEST_CASE("connection: a loss that was told to a client that had gone is told to the next one") {
    Server server;
    Client gone(server);
    gone.greet();
    fake::settings().held = true;
    gone.ask(Command::flush, 0, 0);
    server.until([] { return fake::waiting() == 1; });
    // The volume fails one flush, and takes that for having told it.
    fake::settings().losses.caches = 1;
    fake::settings().fails = [](const VolumeIo&) { return rtrs::from_errno(EIO); };
    SECTION("seen as gone") {
        gone.hang_up();
        server.until([&] { return server.notes.has("closed by the client"); });
        fake::complete();
    }
    SECTION("not seen yet") {
        fake::complete();
        gone.hang_up();
    }
    server.until_empty();
    fake::settings().fails = nullptr;
    fake::settings().held = false;
    CHECK(server.device->has_untold_losses());
    Client next(server);
    next.greet();
    CHECK(next.run(Command::flush, 0, 0).error == number(NbdError::io));
    CHECK(next.run(Command::flush, 0, 0).error == 0);
    CHECK_FALSE(server.device->has_untold_losses());
}

TEST_CASE("connection: a slow handshake is dropped, an idle client is not") {
    Server server({}, {.handshake_timeout = 30ms});
    Client idle(server);
    idle.greet();
    {
        Client client(server);
        client.push(ByteString().u32(3));
        server.until([&] { return server.notes.has("handshake took too long"); });
    }
    server.until([&] { return server.listener->connections().size() == 1; });
    CHECK(idle.run(Command::read, 0, 512).error == 0);
}

// As programs do that are stopped, by a debugger or a terminal.
TEST_CASE("connection: who stands still is dropped only when permits run short") {
    Server server({}, {.payload_timeout = 30ms, .send_timeout = 30ms});
    const std::uint32_t all = server.permits * 131072;
    const auto stand_still = [&] {
        const rtrs::Instant end = server.reactor->now() + 200ms;
        while (server.reactor->now() < end) server.turn();
    };
    Client other(server);
    other.greet();
    for (const std::uint32_t sent : {1000u, 100000u}) {
        server.notes.lines.clear();
        Client client(server);
        client.greet();
        const ByteString data = pattern(131072, 1);
        client.ask(Command::write, 0, 131072, 0, pattern(sent, 1));
        stand_still();
        CHECK(other.run(Command::read, 0, 512).error == 0);
        client.push(Bytes(data).subspan(sent));
        CHECK(client.next()->second.error == 0);

        client.ask(Command::write, 0, all, 0, pattern(sent, 1));
        CHECK(other.run(Command::read, 0, 512).error == 0);
        CHECK(server.notes.has("did not arrive in time"));
    }
    Client client(server);
    client.greet();
    const int reads = 30;
    for (int i = 0; i < reads; ++i) client.ask(Command::read, 0, 131072);
    stand_still();
    for (int i = 0; i < reads; ++i) CHECK(client.next()->second.data.size() == 131072);

    client.ask(Command::read, 0, all);
    CHECK(other.run(Command::read, 0, 512).error == 0);
    CHECK(server.notes.has("not taken in time"));
    server.until([&] { return server.listener->connections().size() == 1; });
    CHECK(fake::permits_free() == server.permits);
}

TEST_CASE("connection: a refused WRITE is read to its end before it is answered") {
    Server server;
    Client client(server);
    client.greet();
    const std::uint32_t most = 20u << 20;
    CHECK(client.run(Command::write, 0, most, 0, ByteString().zeroes(most)).error ==
          number(NbdError::inval));
    CHECK(client.run(Command::write, 64u << 20, 512, 0, ByteString().zeroes(512)).error ==
          number(NbdError::nospc));
    CHECK(client.run(Command::read, 0, 512).error == 0);
    client.ask(Command::write, 0, 100u << 20);
    CHECK(client.wait_for_end());
    CHECK(server.notes.has("absurd length"));
}

TEST_CASE("connection: garbage closes it, and only it") {
    Server server;
    Client good(server), bad(server), mute(server);
    good.greet();
    bad.greet().push(ByteString().zeroes(28));
    CHECK(bad.wait_for_end());
    mute.push(ByteString().u32(0xffffffff));
    mute.pull(18);
    CHECK(mute.wait_for_end());
    CHECK(good.run(static_cast<Command>(99), 0, 0).error == number(NbdError::inval));
    CHECK(good.run(Command::read, 0, 512).error == 0);
}

TEST_CASE("device: the first error wins and is answered once, with its place") {
    fake::Settings settings = small_depth(64);
    settings.fails = [](const VolumeIo& io) {
        if (io.offset == 8192) return rtrs::from_errno(ENOSPC);
        return io.offset == 12288 ? rtrs::from_errno(EIO) : std::error_code();
    };
    Server server(settings);
    Client simple(server), structured(server);
    simple.greet();
    structured.greet(Style::structured);
    CHECK(simple.run(Command::read, 0, 32768).error == number(NbdError::nospc));
    const Reply reply = structured.run(Command::write, 0, 32768, 0, pattern(32768, 1));
    CHECK(reply.error == number(NbdError::nospc));
    CHECK(reply.type == Chunk::error_offset);
    CHECK(reply.error_offset == 8192);
    CHECK(structured.run(Command::read, 12288, 4096).type == Chunk::error);
    CHECK(server.device->counters().errors_nospc == 2);
    CHECK(server.device->counters().errors_io == 1);
}

TEST_CASE("device: FUA is the volume's, or a flush after the write") {
    for (const bool native : {true, false}) {
        fake::Settings settings = small_depth(64);
        settings.geometry.force_unit_access = native;
        settings.held = true;
        Server server(settings);
        Client client(server);
        client.greet();
        client.ask(Command::write, 0, 8192, command_flag::fua, pattern(8192, 1));
        server.until([] { return fake::waiting() == 2; });
        CHECK(fake::log()[0].io.force_unit_access == native);
        fake::complete();
        CHECK(fake::waiting() == (native ? 0 : 1));
        if (!native) CHECK(fake::log()[2].io.operation == VolumeOperation::flush);
        fake::complete();
        CHECK(client.next()->second.error == 0);
    }
}

TEST_CASE("device: TRIM and WRITE_ZEROES go over the whole range in the volume's steps") {
    fake::Settings settings = small_depth(4);
    Server server(settings);
    Client client(server);
    client.greet();
    std::memset(fake::memory(), 0x55, 64u << 20);
    CHECK(client.run(Command::write_zeroes, 512, (40u << 20) + 512).error == 0);
    CHECK(fake::memory()[511] == std::byte{0x55});
    CHECK(std::all_of(fake::memory() + 512, fake::memory() + (40u << 20) + 1024,
                      [](std::byte b) { return b == std::byte{0}; }));
    CHECK(fake::memory()[(40u << 20) + 1024] == std::byte{0x55});
    CHECK(client.run(Command::trim, 0, 64u << 20, command_flag::fua).error == 0);
    fake::settings().held = true;
    client.ask(Command::write_zeroes, 0, 512, command_flag::no_hole | command_flag::fast_zero);
    server.until([] { return fake::waiting() == 1; });
    CHECK(fake::log().back().io.no_unmap);
    CHECK(fake::log().back().io.fast_only);
}

TEST_CASE("device: a volume without write-zeroes gets written zeroes, and is never fast") {
    fake::Settings settings = small_depth(4);
    settings.geometry.write_zeroes_bytes_max = 0;
    settings.geometry.discard_bytes_max = 0;
    settings.geometry.fast_zero = false;
    Server server(settings);
    Client client(server);
    client.greet();
    std::memset(fake::memory(), 0x55, 1u << 20);
    CHECK(client.run(Command::write_zeroes, 512, 100 * 512).error == 0);
    CHECK(std::all_of(fake::memory() + 512, fake::memory() + 101 * 512,
                      [](std::byte b) { return b == std::byte{0}; }));
    CHECK(fake::memory()[101 * 512] == std::byte{0x55});
    CHECK(client.run(Command::write_zeroes, 0, 512, command_flag::fast_zero).error ==
          number(NbdError::notsup));
    CHECK(client.run(Command::trim, 0, 512).error == number(NbdError::inval));
}

TEST_CASE("device: a volume that comes back with other abilities changes no promise") {
    fake::Settings settings = small_depth(4);
    settings.held = true;
    settings.geometry.force_unit_access = false;
    settings.geometry.discard_bytes_max = 0;
    Server server(settings);
    Client client(server);
    client.greet();
    // Sent without FUA: it is the flush that makes it durable, whatever the volume is by now.
    client.ask(Command::write, 0, 512, command_flag::fua, pattern(512, 1));
    server.until([] { return fake::waiting() == 1; });
    fake::settings().geometry.force_unit_access = true;
    fake::complete();
    REQUIRE(fake::waiting() == 1);
    CHECK(fake::log().back().io.operation == VolumeOperation::flush);
    fake::complete();
    CHECK(client.next()->second.error == 0);
    // Used permits, so that their memory is not zero by chance.
    const std::uint32_t length = 4 * fake::settings().max_io_bytes;
    client.ask(Command::write, 0, length / 2, 0, pattern(length / 2, 2));
    server.until([] { return fake::waiting() == 2; });
    fake::complete();
    CHECK(client.next()->second.error == 0);
    fake::settings().geometry.write_zeroes_bytes_max = 512;
    std::memset(fake::memory(), 0x55, length);
    client.ask(Command::write_zeroes, 0, length);
    server.until([] { return fake::waiting() > 0; });
    fake::complete();
    fake::settings().geometry.write_zeroes_bytes_max = 0;
    while (fake::waiting() > 0) fake::complete();
    CHECK(client.next()->second.error == 0);
    CHECK(std::all_of(fake::memory(), fake::memory() + length,
                      [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("device: block status is the volume's where it can tell, else data") {
    fake::Settings settings;
    settings.extents = {{8192, ExtentFlag::none}, {1u << 30, ExtentFlag::hole | ExtentFlag::zero}};
    Server server(settings);
    Client client(server);
    client.greet(Style::structured);
    CHECK(client.run(Command::block_status, 0, 65536).data ==
          ByteString().u32(1).u32(8192).u32(0).u32(57344).u32(3).bytes());
    CHECK(client.run(Command::block_status, 0, 65536, command_flag::req_one).data ==
          ByteString().u32(1).u32(8192).u32(0).bytes());
    fake::settings().extents.clear();  // an error
    CHECK(client.run(Command::block_status, 0, 65536).data ==
          ByteString().u32(1).u32(65536).u32(0).bytes());
    fake::settings().geometry.extents = false;
    CHECK(client.run(Command::block_status, 0, 65536).data ==
          ByteString().u32(1).u32(65536).u32(0).bytes());
}

TEST_CASE("device: requests are checked against the size of now") {
    Server server;
    Client client(server);
    client.greet();
    CHECK(client.run(Command::read, 64u << 20, 512).error == number(NbdError::inval));
    fake::settings().geometry.size_bytes = 32u << 20;
    CHECK(client.run(Command::read, 32u << 20, 512).error == number(NbdError::inval));
    CHECK(client.run(Command::write, 32u << 20, 512, 0, pattern(512, 1)).error ==
          number(NbdError::nospc));
}

TEST_CASE("device: a read-only volume says so and refuses changes") {
    fake::Settings settings;
    settings.access = AccessMode::read_only;
    Server server(settings);
    CHECK((server.device->describe().transmission_flags & transmission_flag::read_only) != 0);
    Client client(server);
    client.greet();
    CHECK(client.run(Command::write, 0, 512, 0, pattern(512, 1)).error == number(NbdError::perm));
    CHECK(client.run(Command::read, 0, 512).error == 0);
}

TEST_CASE("device: a volume that is not open refuses clients with the reason") {
    fake::Settings settings;
    settings.state = VolumeState::opening;
    settings.reason = "access denied";
    settings.open_error = rtrs::from_errno(EACCES);
    Server server(settings);
    Client client(server);
    client.push(ByteString().u32(3).option(Option::go, name_field("disk").u16(0)));
    client.pull(18);
    const auto expected =
        ByteString().answer(Option::go, OptionReply::error_policy,
                            ByteString().text("volume vol1 is not open: access denied"));
    CHECK(client.pull(expected.size()) == expected.bytes());
}

TEST_CASE("connection: requests allocate nothing") {
    Server server(small_depth(64, 16384));
    Client client(server);
    client.greet();
    const auto round = [&](int times) {
        ByteString stream;
        for (int i = 0; i < 20; ++i) {
            stream.add(Client::bytes_of({0, Command::write, 1, 0, 40960})).zeroes(40960);
            stream.add(Client::bytes_of({0, Command::read, 1, 0, 4096}));
        }
        const std::size_t before = allocations;
        for (int i = 0; i < times; ++i) {
            client.push(stream);
            client.skip(20 * (16 + 16 + 4096));
        }
        return allocations - before;
    };
    round(3);
    CHECK(round(50) == 0);
}

TEST_CASE("listener: a dead process's socket is replaced, a live one and other files are not") {
    Server server;
    const auto address = server.listener->options().address;
    NbdListener second({*server.reactor, server.notes}, *server.exports, {.address = address},
                       server);
    const auto live = second.open();
    REQUIRE_FALSE(live);
    CHECK(live.error().error == std::errc::address_in_use);
    CHECK(live.error().text.find("another process serves") != std::string::npos);
    CHECK(std::filesystem::exists(address.path));
    // The probe was a client that left.
    server.until_empty();

    const std::string dead = server.directory + "/dead";
    {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        std::memcpy(name.sun_path, dead.data(), dead.size());
        REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
        ::close(fd);
    }
    struct Closed final : NbdListener::Handler {
        bool closed = false;
        void on_address_free(NbdListener&) override {}
        void on_listener_closed(NbdListener&) override { closed = true; }
        void on_connection_gone(NbdListener&) override {}
    } handler;
    NbdListener third({*server.reactor, server.notes}, *server.exports,
                      {.address = *NbdAddress::parse("unix:" + dead)}, handler);
    REQUIRE(third.open());
    struct stat status{};
    REQUIRE(::stat(dead.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0660);
    third.close();
    server.until([&] { return handler.closed; });
    CHECK_FALSE(std::filesystem::exists(dead));

    const std::string file = server.directory + "/file";
    std::fclose(std::fopen(file.c_str(), "w"));
    NbdListener fourth({*server.reactor, server.notes}, *server.exports,
                       {.address = *NbdAddress::parse("unix:" + file)}, handler);
    CHECK(fourth.open().error().error == std::errc::not_a_socket);
    CHECK(std::filesystem::exists(file));
}

TEST_CASE("listener: clients over the cap are turned away until there is room") {
    Server server({}, {}, 2);
    auto one = std::make_unique<Client>(server);
    Client two(server);
    one->greet();
    two.greet();
    {
        Client three(server);
        CHECK(three.wait_for_end());
    }
    CHECK(server.listener->refused() == 1);
    one.reset();
    server.until([&] { return server.listener->connections().size() == 1; });
    Client four(server);
    four.greet();
}

TEST_CASE("listener: closing lets requests in flight finish") {
    Server server;
    Client client(server);
    client.greet();
    fake::settings().held = true;
    client.ask(Command::read, 0, 4096);
    server.until([] { return fake::waiting() == 1; });
    server.listener->close();
    CHECK_FALSE(std::filesystem::exists(server.directory + "/s"));
    for (int i = 0; i < 5; ++i) server.turn();
    CHECK_FALSE(server.closed);
    fake::complete();
    CHECK(client.next()->second.data.size() == 4096);
    CHECK(client.wait_for_end());
    server.until([&] { return server.closed; });
}

TEST_CASE("listener: tcp serves too") {
    Server server;
    struct Closed final : NbdListener::Handler {
        bool closed = false;
        void on_address_free(NbdListener&) override {}
        void on_listener_closed(NbdListener&) override { closed = true; }
        void on_connection_gone(NbdListener&) override {}
    } handler;
    NbdListener tcp({*server.reactor, server.notes}, *server.exports,
                    {.address = *NbdAddress::parse("tcp:127.0.0.1:0")}, handler);
    REQUIRE(tcp.open());
    CHECK(tcp.port() != 0);
    tcp.close();
    server.until([&] { return handler.closed; });
}

TEST_CASE("listener: addresses are parsed with clear errors") {
    CHECK(NbdAddress::parse("unix:/run/x.sock")->path == "/run/x.sock");
    CHECK(NbdAddress::parse("tcp:127.0.0.1:10809")->port == "10809");
    CHECK(NbdAddress::parse("tcp:[::1]:10809")->host == "::1");
    CHECK(NbdAddress::parse("tcp:[::1]:10809")->text() == "tcp:[::1]:10809");
    for (const char* wrong : {"", "unix:", "tcp:", "tcp:1", "tcp::1", "tcp:::1:1", "tcp:a:70000",
                              "tcp:a:", "tcp:a:b", "udp:a:1", "tcp:[]:1"}) {
        CHECK_FALSE(NbdAddress::parse(wrong));
    }
    CHECK_FALSE(NbdAddress::parse("unix:" + std::string(108, 'x')));
    CHECK(NbdAddress::parse("unix:" + std::string(107, 'x')));
}
