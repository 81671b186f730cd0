// An NBD server over real sockets with a volume in memory below, and a client of it: for tests of
// connections, devices and listeners.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rnbd-client/nbd/connection.h"
#include "rnbd-client/nbd/listener.h"
#include "rtrs/sockets/address.h"
#include "tests/unit/rnbd-client/fake_volume.h"
#include "tests/unit/rnbd-client/nbd_bytes.h"

namespace nbdtest {

using namespace rnbd;
using namespace rnbd::nbd;
using namespace std::chrono_literals;

inline std::string new_directory() {
    std::string path = std::filesystem::temp_directory_path() / "rnbd-nbd-XXXXXX";
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    return path;
}

struct Notes final : rtrs::Tracer {
    std::vector<std::string> lines;
    std::vector<rtrs::TraceLevel> levels;
    void trace(rtrs::TraceLevel level, std::string_view, std::string_view,
               std::string_view text) override {
        lines.emplace_back(text);
        levels.push_back(level);
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
        NbdListenerOptions options{.address = {NbdTransport::unix_socket, directory + "/s"},
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

inline ByteString name_field(std::string_view name) {
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
    // Over TCP, to a listener of the test's own. Takes little at a time: answers wait in the
    // server's socket.
    Client(Server& server, const NbdAddress& at) : server_(server) {
        const auto address = rtrs::parse_address(at.place);
        REQUIRE(address);
        fd_ = ::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int bytes = 16 << 10;
        REQUIRE(::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
        REQUIRE(::connect(fd_, address->get(), address->bytes) == 0);
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
    // Of what waits in the socket so many bytes at the most, for nobody; no turn of the server.
    void drop(std::size_t bytes) {
        std::vector<std::byte> space(bytes);
        (void)::recv(fd_, space.data(), space.size(), MSG_DONTWAIT);
    }
    // Into the socket what it takes; no turn of the server. Returns how many bytes those were.
    std::size_t put(Bytes bytes) {
        const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        return sent > 0 ? static_cast<std::size_t>(sent) : 0;
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

inline ByteString pattern(std::uint32_t bytes, unsigned seed) {
    std::string text(bytes, 0);
    for (std::uint32_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(seed + i * 7 + i / 256);
    return ByteString().text(text);
}

inline fake::Settings small_depth(std::uint32_t depth, std::uint32_t io = 4096) {
    fake::Settings settings;
    settings.queue_depth = depth;
    settings.max_io_bytes = io;
    return settings;
}

inline std::uint32_t number(NbdError error) { return static_cast<std::uint32_t>(error); }

}  // namespace nbdtest
