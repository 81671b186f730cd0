// A server and a client of RTRS in one program: the client stores a line at the server and reads it
// back. Over TCP on the loopback device, on one reactor, with no thread of its own.
#include <cstdio>
#include <cstring>
#include <string>

#include "rtrs/client.h"
#include "rtrs/fabrics.h"
#include "rtrs/reactor.h"
#include "rtrs/server.h"

namespace {

using namespace rtrs;

struct PrintTracer final : Tracer {
    void trace(TraceLevel, std::string_view subsystem, std::string_view subject,
               std::string_view text) override {
        std::printf("%.*s: %.*s: %.*s\n", static_cast<int>(subsystem.size()), subsystem.data(),
                    static_cast<int>(subject.size()), subject.data(), static_cast<int>(text.size()),
                    text.data());
    }
};

// One line of memory that clients write and read.
class Shelf final : public ServerHandler {
  public:
    explicit Shelf(Reactor& reactor) : reactor_(reactor) {}

    std::error_code on_session_up(ServerSession&) override { return {}; }
    void on_session_down(ServerSession&) override {}
    void on_closed() override { reactor_.stop(); }
    void on_request(ServerOp& op) override {
        const MutableBytes data = op.data();
        if (op.direction() == Direction::write) {
            line_.assign(reinterpret_cast<const char*>(data.data()), data.size());
            return op.respond({});
        }
        const std::size_t bytes = std::min(line_.size(), data.size());
        std::memcpy(data.data(), line_.data(), bytes);
        op.respond({}, static_cast<std::uint32_t>(bytes));
    }

  private:
    Reactor& reactor_;
    std::string line_;
};

// Writes a line, reads it back, closes.
class Visitor final : public ClientSessionHandler {
  public:
    Visitor(SessionEnvironment environment, ClientSessionOptions options, Server& server)
        : session_(environment, std::move(options), *this), server_(server) {}

    std::error_code open() { return session_.open(); }
    bool satisfied() const { return satisfied_; }

    void on_link_up() override {
        // The link may come up more than once; a program with requests in flight resumes them here.
        if (satisfied_) return;
        Permit permit = *session_.try_take();
        std::memcpy(permit.payload().data(), line.data(), line.size());
        submit(std::move(permit), Direction::write, [](void* self, Permit, std::error_code error) {
            static_cast<Visitor*>(self)->written(error);
        });
    }
    void on_link_down(std::error_code) override {}
    void on_closed() override { server_.close(); }

  private:
    static constexpr std::string_view line = "kept at the server";

    void written(std::error_code error) {
        if (error) return session_.close();
        submit(*session_.try_take(), Direction::read,
               [](void* self, Permit permit, std::error_code failed) {
                   static_cast<Visitor*>(self)->read(permit, failed);
               });
    }

    void read(const Permit& permit, std::error_code error) {
        satisfied_ = !error && std::memcmp(permit.payload().data(), line.data(), line.size()) == 0;
        session_.close();
    }

    // The message is for the layer above RTRS: RNBD's messages say which blocks. Here it says
    // nothing.
    void submit(Permit permit, Direction direction, ClientRequest::Responded responded) {
        static constexpr std::byte message[8]{};
        session_.submit(std::move(permit), {.direction = direction,
                                            .message = message,
                                            .payload_bytes = line.size(),
                                            .responded = responded,
                                            .context = this});
    }

    ClientSession session_;
    Server& server_;
    bool satisfied_ = false;
};

int fail(const char* what, std::error_code error) {
    std::fprintf(stderr, "%s: %s\n", what, error.message().c_str());
    return 1;
}

}  // namespace

int main() {
    auto reactor = Reactor::create();
    if (!reactor) return fail("io_uring", reactor.error());
    Random random = Random::from_entropy();
    PrintTracer tracer;
    const SessionEnvironment environment{**reactor, random, tracer};
    const auto fabric = make_tcp_fabric(**reactor, {});

    Shelf shelf(**reactor);
    Server server(environment, {.queue_depth = 8}, shelf);
    const auto address = server.listen(*fabric, "127.0.0.1:0");
    if (!address) return fail("listen", address.error());

    Visitor visitor(environment, {.name = "visitor", .paths = {{fabric.get(), "", *address}}},
                    server);
    if (const auto error = visitor.open()) return fail("open", error);
    (*reactor)->run();
    std::printf("%s\n", visitor.satisfied() ? "read back what was written" : "it failed");
    return visitor.satisfied() ? 0 : 1;
}
