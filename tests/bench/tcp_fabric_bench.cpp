// Requests and answers over the TCP fabric between two processes: what a small request answered by
// a block of data costs, without RTRS, RNBD or NBD around it. One JSON line out.
//
//   tcp_fabric_bench [--depth N] [--size BYTES] [--connections N] [--seconds S] [--crc on|off]
//                    [--direction read|write] [--buffers N] [--buffer-bytes N] [--region BYTES]
//
// read: a 60-byte write with immediate is answered by one of --size bytes; write: the other way.
// --region: the answers of a read come from random places in so much memory (default: as little as
// possible, so that it stays in the cache). Compare with the machine's limit measured by a minimal
// request/response server of the same shape, both pinned to one CPU; absolute numbers of two
// machines or two runs do not compare.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "rtrs/base/assert.h"
#include "rtrs/base/random.h"
#include "rtrs/fabrics.h"

using namespace rtrs;

namespace {

constexpr std::uint32_t request_bytes = 60;

struct Options {
    std::uint32_t depth = 32;
    std::uint32_t size = 4096;
    std::uint32_t connections = 1;
    std::size_t region = 0;
    double seconds = 2;
    bool crc = true;
    bool write = false;
    Reactor::Options reactor;
    // An answer may be there before the send of what it answers is complete: twice the depth.
    EndpointOptions depths() const {
        return {.send_queue_depth = 2 * depth, .receive_queue_depth = depth};
    }
    std::uint32_t to_server() const { return write ? size : request_bytes; }
    std::uint32_t to_client() const { return write ? request_bytes : size; }
};

// Seen by both processes.
struct Shared {
    volatile std::uint16_t port = 0;
    volatile bool measuring = false;
    volatile bool stop = false;
    double server_seconds = 0;
    std::uint64_t server_turns = 0;
    std::uint64_t requests = 0;
};

double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Memory for depth messages in each direction, and the peer's.
struct Side {
    // region: bytes that are sent from, at least depth messages.
    Side(ProtectionDomain& domain, const Options& options, std::uint32_t out, std::uint32_t in,
         std::size_t region_bytes)
        : out_bytes(out), places(std::max<std::size_t>(options.depth, region_bytes / out)) {
        const auto pages = [](std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; };
        const std::size_t out_room = pages(places * out);
        const std::size_t in_room = pages(std::size_t{options.depth} * in);
        const std::size_t total = out_room + in_room;
        void* memory =
            mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        RTRS_ASSERT(memory != MAP_FAILED);
        std::memset(memory, 0x5a, total);
        source = static_cast<std::byte*>(memory);
        target = source + out_room;
        region = std::move(*domain.register_memory({target, in_room}, Access::remote_write));
        const RemoteBuffer mine = region->remote(0, 0);
        std::memcpy(hello, &mine.address, 8);
        std::memcpy(hello + 8, &mine.key, 4);
    }
    void learn(Bytes data) {
        RTRS_ASSERT(data.size() >= 12);
        std::memcpy(&peer.address, data.data(), 8);
        std::memcpy(&peer.key, data.data() + 8, 4);
    }
    void post(Endpoint& endpoint, std::uint32_t slot) {
        const std::size_t place = places > 4096 ? random.below(places) : slot;
        const Segment segment{source + place * out_bytes, out_bytes};
        WorkRequest request;
        request.opcode = WorkOpcode::write_immediate;
        request.local = {&segment, 1};
        request.remote = {peer.address + std::uint64_t{slot} * out_bytes, peer.key, 0};
        request.immediate = slot;
        RTRS_ASSERT(!endpoint.post({&request, 1}));
    }
    std::uint32_t out_bytes;
    std::size_t places;
    Random random{1};
    std::byte* source;
    std::byte* target;
    std::unique_ptr<MemoryRegion> region;
    RemoteBuffer peer{};
    std::byte hello[12];
};

struct ServerSide final : EndpointHandler {
    ServerSide(Side memory, const Options& its_options)
        : side(std::move(memory)), options(its_options) {}
    void on_established(Bytes) override {}
    void on_rejected(Bytes) override {}
    void on_completion(const Completion& completion) override {
        if (completion.opcode != CompletionOpcode::receive_immediate) return;
        RTRS_ASSERT(!endpoint->post_receive(0, {}));
        side.post(*endpoint, completion.immediate);
    }
    void on_disconnected(std::error_code) override {}
    void on_drained() override { endpoint.reset(); }
    Side side;
    const Options& options;
    std::unique_ptr<Endpoint> endpoint;
};

struct Server final : ListenerHandler {
    Server(const Options& its_options, Reactor& reactor, const TcpFabricOptions& fabric_options)
        : options(its_options),
          fabric(make_tcp_fabric(reactor, fabric_options)),
          domain(std::move(*fabric->create_domain())),
          listener(std::move(*fabric->listen("127.0.0.1:0", *this))) {}
    void on_connect_request(std::unique_ptr<ConnectRequest> request) override {
        auto side = std::make_unique<ServerSide>(
            Side(*domain, options, options.to_client(), options.to_server(), options.region),
            options);
        side->side.learn(request->private_data());
        side->endpoint =
            std::move(*request->accept(*domain, side->side.hello, options.depths(), *side));
        for (std::uint32_t i = 0; i < options.depth; ++i) {
            RTRS_ASSERT(!side->endpoint->post_receive(0, {}));
        }
        sides.push_back(std::move(side));
    }
    const Options& options;
    std::unique_ptr<Fabric> fabric;
    std::unique_ptr<ProtectionDomain> domain;
    std::unique_ptr<Listener> listener;
    std::vector<std::unique_ptr<ServerSide>> sides;
};

struct ClientSide final : EndpointHandler {
    ClientSide(Side memory, const Options& its_options, std::uint64_t& its_done)
        : side(std::move(memory)), options(its_options), done(its_done) {}
    void on_established(Bytes data) override {
        side.learn(data);
        for (std::uint32_t i = 0; i < options.depth; ++i) side.post(*endpoint, i);
    }
    void on_rejected(Bytes) override { std::abort(); }
    void on_completion(const Completion& completion) override {
        if (completion.opcode != CompletionOpcode::receive_immediate) return;
        ++done;
        RTRS_ASSERT(!endpoint->post_receive(0, {}));
        side.post(*endpoint, completion.immediate);
    }
    void on_disconnected(std::error_code) override { std::abort(); }
    void on_drained() override {}
    Side side;
    const Options& options;
    std::uint64_t& done;
    std::unique_ptr<Endpoint> endpoint;
};

// Calls begin when the measured time starts and end when it is over.
template <typename Begin, typename End>
void run(Reactor& reactor, const Shared& shared, Begin begin, End end) {
    bool begun = false;
    while (!shared.stop) {
        reactor.run_once(std::chrono::milliseconds(10));
        if (!begun && shared.measuring) {
            begun = true;
            begin();
        }
    }
    end();
}

void serve(const Options& options, const TcpFabricOptions& fabric_options, Shared& shared) {
    auto reactor = std::move(*Reactor::create(options.reactor));
    Server server(options, *reactor, fabric_options);
    const std::string address = server.listener->address();
    shared.port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    double before = 0;
    std::uint64_t turns = 0;
    run(
        *reactor, shared,
        [&] {
            before = cpu_seconds();
            turns = reactor->statistics().turns;
        },
        [&] {
            shared.server_seconds = cpu_seconds() - before;
            shared.server_turns = reactor->statistics().turns - turns;
        });
    _exit(0);  // a measured process needs no orderly end
}

void request(const Options& options, const TcpFabricOptions& fabric_options, Shared& shared) {
    auto reactor = std::move(*Reactor::create(options.reactor));
    auto fabric = make_tcp_fabric(*reactor, fabric_options);
    auto domain = std::move(*fabric->create_domain());
    while (shared.port == 0) usleep(1000);
    std::uint64_t done = 0;
    std::vector<std::unique_ptr<ClientSide>> sides;
    for (std::uint32_t i = 0; i < options.connections; ++i) {
        sides.push_back(std::make_unique<ClientSide>(
            Side(*domain, options, options.to_server(), options.to_client(), 0), options, done));
        ClientSide& side = *sides.back();
        side.endpoint =
            std::move(*fabric->connect(*domain, "", "127.0.0.1:" + std::to_string(shared.port),
                                       side.side.hello, options.depths(), side));
        for (std::uint32_t k = 0; k < options.depth; ++k) {
            RTRS_ASSERT(!side.endpoint->post_receive(0, {}));
        }
    }
    const auto until = [&](double seconds) {
        const Instant end = reactor->now() + Duration(static_cast<std::int64_t>(seconds * 1e9));
        while (reactor->now() < end) {
            for (int i = 0; i < 16; ++i) reactor->run_once(std::chrono::milliseconds(10));
        }
    };
    while (done == 0) reactor->run_once(std::chrono::milliseconds(10));
    until(0.2);  // warm up
    shared.measuring = true;
    const double before = cpu_seconds();
    const Instant begin = reactor->now();
    const std::uint64_t turns = reactor->statistics().turns;
    done = 0;
    until(options.seconds);
    const double seconds = std::chrono::duration<double>(reactor->now() - begin).count();
    const double client = cpu_seconds() - before;
    shared.requests = done;
    shared.stop = true;
    const std::uint64_t client_turns = reactor->statistics().turns - turns;
    int status = 0;
    waitpid(-1, &status, 0);
    const auto n = static_cast<double>(done);
    std::printf(
        "{\"direction\":\"%s\",\"crc\":\"%s\",\"depth\":%u,\"size\":%u,\"connections\":%u,"
        "\"iops\":%.0f,\"mb_s\":%.1f,\"us_per_io\":%.3f,\"server_us_per_io\":%.3f,"
        "\"client_us_per_io\":%.3f,\"ios_per_server_turn\":%.2f,\"ios_per_client_turn\":%.2f}\n",
        options.write ? "write" : "read", options.crc ? "on" : "off", options.depth, options.size,
        options.connections, n / seconds, n / seconds * options.size / 1e6,
        (client + shared.server_seconds) * 1e6 / n, shared.server_seconds * 1e6 / n,
        client * 1e6 / n, n / static_cast<double>(shared.server_turns + 1),
        n / static_cast<double>(client_turns + 1));
    std::fflush(stdout);
    _exit(0);
}

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string_view name = argv[i];
        const std::string value = argv[i + 1];
        const auto number = [&] { return static_cast<std::uint32_t>(std::stoul(value)); };
        if (name == "--depth") {
            options.depth = number();
        } else if (name == "--size") {
            options.size = number();
        } else if (name == "--connections") {
            options.connections = number();
        } else if (name == "--seconds") {
            options.seconds = std::stod(value);
        } else if (name == "--crc") {
            options.crc = value == "on";
        } else if (name == "--direction") {
            options.write = value == "write";
        } else if (name == "--region") {
            options.region = std::stoul(value);
        } else if (name == "--buffers") {
            options.reactor.receive_buffers = number();
        } else if (name == "--buffer-bytes") {
            options.reactor.receive_buffer_bytes = number();
        } else {
            std::fprintf(stderr, "unknown option %s\n", argv[i]);
            std::exit(2);
        }
    }
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    auto* shared = new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared;
    TcpFabricOptions fabric_options;
    if (!options.crc) fabric_options.data_checksum = TcpFabricOptions::DataChecksum::off;
    if (fork() == 0) serve(options, fabric_options, *shared);
    request(options, fabric_options, *shared);
}
