// What a message between two ends of a session costs by its size, sent eagerly and by rendezvous.
//
//   message_cost [--fabric tcp|verbs] [--rounds N] [--milliseconds MS]
//
// Both ends are in this process, so that the figures are the work of both. The two ways take turns,
// MS each, N rounds per size; the table has medians over the rounds, and the median of each round's
// ratio, which a busy machine disturbs least. verbs: on the device at the address RNBD_RDMA_HOST.
// cpu: of this process; soft-RoCE's kernel threads are not in it.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rtrs/base/assert.h"
#include "rtrs/client.h"
#include "rtrs/fabrics.h"
#include "rtrs/null_tracer.h"
#include "rtrs/server.h"

using namespace rtrs;

namespace {

struct Options {
    bool verbs = false;
    unsigned rounds = 15;
    std::chrono::milliseconds turn{20};
};

double wall_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

double cpu_seconds() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct ServerEnd final : ServerHandler {
    std::error_code on_session_up(ServerSession& session) override {
        service = session.messages();
        RTRS_ASSERT(service != nullptr);
        for (int i = 0; i < 32; ++i) post();
        return {};
    }
    void on_request(ServerOp& op) override { op.respond({}); }
    void on_session_down(ServerSession&) override {}
    void on_closed() override { closed = true; }
    void post() {
        const auto posted = service->receive(
            {.tag = 1}, 1 << 20,
            [](void* self, const ReceivedMessage& message) {
                if (!message.error) static_cast<ServerEnd*>(self)->post();
            },
            this);
        RTRS_ASSERT(posted);
    }

    MessageService* service = nullptr;
    bool closed = false;
};

struct ClientEnd final : ClientSessionHandler {
    void on_link_up() override {}
    void on_link_down(std::error_code) override {}
    void on_closed() override { closed = true; }
    bool closed = false;
};

struct Cost {
    double wall_us = 0;
    double cpu_us = 0;
};

// One session with an eager limit of its own, and messages of one size on it.
class Pair {
  public:
    Pair(Reactor& reactor, Random& random, Tracer& tracer, Fabric& server_fabric, Fabric& fabric,
         const std::string& host, std::uint32_t eager_bytes, std::uint32_t bytes)
        : reactor_(reactor),
          bytes_(bytes),
          server_({reactor, random, tracer}, server_options(eager_bytes), server_end_) {
        const auto address = server_.listen(server_fabric, host + ":0");
        RTRS_ASSERT(address);
        ClientSessionOptions client{.name = "bench", .messages = messages(eager_bytes)};
        client.paths.push_back({&fabric, "", *address});
        session_.emplace(SessionEnvironment{reactor, random, tracer}, std::move(client),
                         client_end_);
        RTRS_ASSERT(!session_->open());
        wait([&] { return session_->link_up(); });
        RTRS_ASSERT(session_->peer_has_messages());
        stopping_ = true;
        send();  // the first one waits for the connection
        wait([&] { return under_way_ == 0; });
    }
    ~Pair() {
        session_->close();
        wait([&] { return client_end_.closed; });
        server_.close();
        wait([&] { return server_end_.closed; });
    }

    // Per message, `depth` of them under way.
    Cost measure(unsigned depth, std::chrono::milliseconds turn) {
        const std::uint64_t before = done_;
        const double cpu = cpu_seconds(), wall = wall_seconds();
        const double end = wall + std::chrono::duration<double>(turn).count();
        stopping_ = false;
        for (unsigned i = 0; i < depth; ++i) send();
        wait([&] { return wall_seconds() >= end; });
        stopping_ = true;
        wait([&] { return under_way_ == 0; });
        const auto count = static_cast<double>(done_ - before);
        return {(wall_seconds() - wall) * 1e6 / count, (cpu_seconds() - cpu) * 1e6 / count};
    }
    std::uint64_t rendezvous() const { return server_end_.service->status().rendezvous; }

  private:
    static MessageOptions messages(std::uint32_t eager_bytes) {
        return {.eager_bytes = eager_bytes};
    }
    static ServerOptions server_options(std::uint32_t eager_bytes) {
        ServerOptions options{.queue_depth = 4};
        options.messages = messages(eager_bytes);
        return options;
    }
    template <typename Done>
    void wait(Done done) {
        while (!done()) reactor_.run_once(std::chrono::milliseconds(1));
    }
    void send() {
        MessageBuffer content(bytes_);
        RTRS_ASSERT(content.size() == bytes_);
        std::memset(content.bytes().data(), 7, bytes_);
        const auto error = session_->messages()->send(
            1, std::move(content),
            [](void* self, std::error_code failed) {
                RTRS_ASSERT(!failed);
                static_cast<Pair*>(self)->sent();
            },
            this);
        RTRS_ASSERT(!error);
        ++under_way_;
    }
    void sent() {
        --under_way_;
        ++done_;
        if (!stopping_) send();
    }

    Reactor& reactor_;
    std::uint32_t bytes_;
    ServerEnd server_end_;
    ClientEnd client_end_;
    Server server_;
    std::optional<ClientSession> session_;
    std::uint64_t done_ = 0;
    unsigned under_way_ = 0;
    bool stopping_ = false;
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

class Bench {
  public:
    explicit Bench(const Options& options) : options_(options) {
#ifdef RTRS_VERBS
        if (options.verbs) {
            const char* host = std::getenv("RNBD_RDMA_HOST");
            if (host == nullptr) {
                std::fprintf(stderr, "RNBD_RDMA_HOST names no RDMA device's address\n");
                std::exit(77);
            }
            host_ = host;
            fabric_ = make_verbs_fabric(*reactor_, {.local_host = host_}).value();
            server_fabric_ = make_verbs_fabric(*reactor_, {.local_host = host_}).value();
        }
#endif
        if (!fabric_) {
            fabric_ = make_tcp_fabric(*reactor_, {});
            server_fabric_ = make_tcp_fabric(*reactor_, {});
        }
    }

    void run() {
        std::printf("%8s %5s | %9s %9s %6s | %9s %9s %6s\n", "bytes", "depth", "eager us",
                    "rendez us", "ratio", "cpu us", "cpu us", "ratio");
        for (std::uint32_t bytes = 128; bytes <= 1 << 20; bytes *= 2) {
            Pair eager(*reactor_, random_, tracer_, *server_fabric_, *fabric_, host_, bytes, bytes);
            Pair rendezvous(*reactor_, random_, tracer_, *server_fabric_, *fabric_, host_, 64,
                            bytes);
            for (const unsigned depth : {1u, 8u}) compare(bytes, depth, eager, rendezvous);
            RTRS_ASSERT(eager.rendezvous() == 0 && rendezvous.rendezvous() > 0);
        }
    }

  private:
    void compare(std::uint32_t bytes, unsigned depth, Pair& eager, Pair& rendezvous) {
        std::vector<double> walls[2], cpus[2], wall_ratios, cpu_ratios;
        for (unsigned round = 0; round < options_.rounds; ++round) {
            // The first of a round is not always the same.
            Cost costs[2];
            for (unsigned turn = 0; turn < 2; ++turn) {
                const unsigned which = (turn + round) % 2;
                costs[which] = (which == 0 ? eager : rendezvous).measure(depth, options_.turn);
                walls[which].push_back(costs[which].wall_us);
                cpus[which].push_back(costs[which].cpu_us);
            }
            wall_ratios.push_back(costs[1].wall_us / costs[0].wall_us);
            cpu_ratios.push_back(costs[1].cpu_us / costs[0].cpu_us);
        }
        std::printf("%8u %5u | %9.1f %9.1f %6.2f | %9.1f %9.1f %6.2f\n", bytes, depth,
                    median(walls[0]), median(walls[1]), median(wall_ratios), median(cpus[0]),
                    median(cpus[1]), median(cpu_ratios));
        std::fflush(stdout);
    }

    Options options_;
    NullTracer tracer_;
    Random random_{5};
    std::string host_ = "127.0.0.1";
    std::unique_ptr<Reactor> reactor_ = Reactor::create().value();
    std::unique_ptr<Fabric> fabric_, server_fabric_;
};

[[noreturn]] void usage() {
    std::fprintf(stderr, "message_cost [--fabric tcp|verbs] [--rounds N] [--milliseconds MS]\n");
    std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 >= argc) usage();
        const std::string_view word = argv[i], value = argv[i + 1];
        const int number = std::atoi(argv[i + 1]);
        if (word == "--fabric" && value == "tcp") {
            options.verbs = false;
#ifdef RTRS_VERBS
        } else if (word == "--fabric" && value == "verbs") {
            options.verbs = true;
#endif
        } else if (word == "--rounds" && number > 0) {
            options.rounds = static_cast<unsigned>(number);
        } else if (word == "--milliseconds" && number > 0) {
            options.turn = std::chrono::milliseconds(number);
        } else {
            usage();
        }
    }
    Bench(options).run();
    return 0;
}
