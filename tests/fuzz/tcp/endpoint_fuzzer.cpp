// A whole endpoint fed by a hostile peer over a loopback connection.
//
// The input is a program for the peer: handshake, then steps that emit frames (well-formed, with
// any field bent, payloads cut short) or raw bytes, and pauses that let the server's side run. The
// server's owner answers, revokes and disconnects as the input says. Checked: the memory around
// what is offered stays untouched, every posted receive completes once, the endpoint drains.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <vector>

#include "rtrs/base/assert.h"
#include "rtrs/fabric/tcp/crc32c.h"
#include "rtrs/fabric/tcp/frame.h"
#include "rtrs/fabrics.h"
#include "rtrs/sockets/address.h"

using namespace rtrs;
using namespace rtrs::tcp;

namespace {

constexpr std::size_t offered = 192u << 10;
constexpr std::size_t guard = 64u << 10;
constexpr std::byte guard_byte{0xa5};

class Input {
  public:
    explicit Input(Bytes bytes) : bytes_(bytes) {}
    bool empty() const { return bytes_.empty(); }
    std::uint64_t number(std::size_t width) {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < width && !bytes_.empty(); ++i) {
            value = value << 8 | std::to_integer<std::uint8_t>(bytes_[0]);
            bytes_ = bytes_.subspan(1);
        }
        return value;
    }
    Bytes take(std::size_t count) {
        const Bytes taken = bytes_.first(std::min(count, bytes_.size()));
        bytes_ = bytes_.subspan(taken.size());
        return taken;
    }

  private:
    Bytes bytes_;
};

struct Owner final : EndpointHandler {
    void on_established(Bytes) override {}
    void on_rejected(Bytes) override { std::abort(); }
    void on_completion(const Completion& completion) override;
    void on_disconnected(std::error_code) override { ++disconnected; }
    void on_drained() override { ++drained; }
    void offer_receive() {
        if (endpoint->post_receive(posted, {receive, sizeof receive})) return;
        ++posted;
        is_offered.push_back(true);
    }
    std::unique_ptr<Endpoint> endpoint;
    std::uint64_t posted = 0, completed = 0, revokes_pending = 0;
    std::vector<bool> is_offered;  // by the receive's context
    int disconnected = 0, drained = 0;
    std::uint8_t habit = 0;
    std::byte receive[300];
};

struct World final : ListenerHandler {
    World() : reactor(std::move(*Reactor::create())), fabric(make_tcp_fabric(*reactor, {})) {
        memory = static_cast<std::byte*>(mmap(nullptr, offered + 2 * guard, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        std::fill_n(memory, offered + 2 * guard, guard_byte);
        domain = std::move(*fabric->create_domain());
        region = std::move(*domain->register_memory({memory + guard, offered},
                                                    Access::remote_write | Access::remote_read));
        windows = std::move(*domain->create_windows(*region, 1));
        listener = std::move(*fabric->listen("127.0.0.1:0", *this));
    }
    void on_connect_request(std::unique_ptr<ConnectRequest> request) override {
        if (owner->endpoint) return;  // one per input
        auto accepted =
            request->accept(*domain, {}, {.send_queue_depth = 4, .receive_queue_depth = 8}, *owner);
        if (!accepted) return;
        owner->endpoint = std::move(*accepted);
        for (int i = 0; i < 4; ++i) owner->offer_receive();
    }
    bool guards_untouched() const {
        for (std::size_t i = 0; i < guard; ++i) {
            if (memory[i] != guard_byte || memory[guard + offered + i] != guard_byte) return false;
        }
        return true;
    }
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<Fabric> fabric;
    std::byte* memory = nullptr;
    std::unique_ptr<ProtectionDomain> domain;
    std::unique_ptr<MemoryRegion> region;
    std::unique_ptr<MemoryWindows> windows;
    MemoryWindow window() const { return {windows.get()}; }
    Key window_key = 0;  // of the newest bind, also when it is dead
    std::unique_ptr<Listener> listener;
    Owner* owner = nullptr;
};

World& world() {
    static World& the_world = *new World;
    return the_world;
}

void bind(Owner& owner) {
    const Segment all{world().region->data(), static_cast<std::uint32_t>(offered)};
    const WorkRequest request{
        .opcode = WorkOpcode::bind_window, .local = {&all, 1}, .window = world().window()};
    if (!owner.endpoint->post({&request, 1})) world().window_key = world().window().key();
}

void revoke(Owner& owner) {
    if (owner.revokes_pending > 0) return;
    if (owner.endpoint->post_revoke(world().window(), 0) == RevokeResult::pending) {
        ++owner.revokes_pending;
    }
}

void Owner::on_completion(const Completion& completion) {
    if (completion.opcode == CompletionOpcode::revoke) {
        --revokes_pending;
        return;
    }
    if (completion.opcode == CompletionOpcode::send) return;
    // In any order (P7), each once.
    RTRS_ASSERT(completion.context < posted && is_offered[completion.context]);
    is_offered[completion.context] = false;
    ++completed;
    if (completion.status != CompletionStatus::success) return;
    if ((habit & 1) != 0) offer_receive();
    if ((habit & 2) != 0) revoke(*this);
    if ((habit & 4) != 0) bind(*this);
    if ((habit & 8) != 0) {
        const Segment segment{world().region->data(), 20000};
        const WorkRequest request{.opcode = WorkOpcode::send, .local = {&segment, 1}};
        (void)endpoint->post({&request, 1});
    }
    if ((habit & 16) != 0 && completed == 3) endpoint->disconnect();
}

class Peer {
  public:
    Peer() {
        const auto to = parse_address(world().listener->address());
        fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int failed = 0;
        do {  // the fuzzer's own timer interrupts
            failed = ::connect(fd_, to->get(), to->bytes);
        } while (failed != 0 && errno == EINTR);
        RTRS_ASSERT(failed == 0);
    }
    ~Peer() {
        const linger reset{1, 0};  // leaves no socket behind in TIME_WAIT
        ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        ::close(fd_);
    }
    void say(Bytes bytes) {
        for (int tries = 0; !bytes.empty() && tries < 200; ++tries) {
            const ssize_t sent =
                ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN) return;
            if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
            if (!bytes.empty()) run(1);
        }
    }
    void run(int turns) {
        for (int i = 0; i < turns; ++i) world().reactor->run_once(Duration::zero());
        std::byte waste[4096];
        for (int i = 0; i < 16 && ::recv(fd_, waste, sizeof waste, MSG_DONTWAIT) > 0; ++i) {
        }
    }

  private:
    int fd_ = -1;
};

void greet(Peer& peer, Input& input) {
    const std::uint64_t how = input.number(1);
    Hello hello;
    hello.payload_crc = (how & 1) != 0;
    hello.reads_max = static_cast<std::uint16_t>(how >> 4);
    HandshakeFrame frame = emit_handshake(Opcode::connect_request, hello, input.take(how & 7));
    if ((how & 8) != 0) frame.bytes[input.number(1) % frame.size] ^= std::byte{0x11};
    peer.say(Bytes(frame.bytes).first(frame.size));
    peer.run(3);
}

void say_frame(Peer& peer, Input& input, bool crc) {
    static const std::vector<std::byte> filler(offered + 1000, std::byte{0x77});
    const std::uint64_t bend = input.number(1);
    FrameHeader header;
    header.opcode = static_cast<Opcode>(4 + input.number(1) % 8);
    const bool writes = header.opcode == Opcode::write || header.opcode == Opcode::write_immediate;
    const bool reads = header.opcode == Opcode::read_request;
    const std::uint64_t bytes = (bend & 1) != 0 ? input.number(3) % filler.size() : input.number(1);
    std::array<std::byte, read_request_bytes> request;
    Bytes payload = Bytes(filler).first(bytes);
    if (reads) {
        emit_read_request({static_cast<std::uint32_t>(bytes), 1}, request.data());
        payload = request;
    }
    if (header.opcode == Opcode::disconnect) payload = {};
    if (writes || reads) {
        // From a little below the region to far above it.
        header.address = reinterpret_cast<std::uint64_t>(world().region->data()) +
                         input.number((bend & 2) != 0 ? 3 : 2) - 16;
        header.key = (bend & 4) != 0 ? world().window_key : world().region->key();
    }
    if (header.opcode == Opcode::send_invalidate) header.key = world().window_key;
    if ((bend & 8) != 0) header.key ^= static_cast<Key>(input.number(4));
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    if (crc && !payload.empty()) {
        header.flags = flag_payload_crc;
        header.payload_crc = crc32c(payload);
    }
    if ((bend & 16) != 0) header.payload_crc ^= 1;
    if ((bend & 32) != 0) header.flags ^= static_cast<std::uint8_t>(input.number(1));
    if ((bend & 64) != 0) header.payload_bytes = static_cast<std::uint32_t>(input.number(4));
    std::array<std::byte, header_bytes> emitted;
    emit_header(header, emitted.data());
    peer.say(emitted);
    peer.say((bend & 128) != 0 ? payload.first(payload.size() / 2) : payload);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input(std::as_bytes(std::span(data, size)));
    auto owner = std::make_unique<Owner>();
    world().owner = owner.get();
    owner->habit = static_cast<std::uint8_t>(input.number(1));
    const bool crc = size > 1 && (data[1] & 1) != 0;
    {
        Peer peer;
        greet(peer, input);
        for (int steps = 0; !input.empty() && steps < 64; ++steps) {
            const std::uint64_t step = input.number(1);
            if (step < 160) {
                say_frame(peer, input, crc);
            } else if (step < 180) {
                peer.say(input.take(input.number(1)));
            } else if (step < 220 || !owner->endpoint || owner->disconnected > 0) {
                peer.run(static_cast<int>(step % 4) + 1);
            } else if (step < 235) {
                bind(*owner);
            } else if (step < 250) {
                revoke(*owner);
            } else {
                owner->endpoint->disconnect();
            }
        }
        peer.run(2);
    }
    // The accept may still be under way; a peer that is gone ends all of it.
    for (int turns = 0; turns < 10000; ++turns) {
        world().reactor->run_once(owner->endpoint ? std::chrono::milliseconds(1)
                                                  : Duration::zero());
        if (owner->endpoint ? owner->drained == 1 : turns > 20) break;
    }
    if (owner->endpoint) {
        RTRS_ASSERT(owner->drained == 1);
        RTRS_ASSERT(owner->disconnected == 1);
        RTRS_ASSERT(owner->completed == owner->posted);
        RTRS_ASSERT(owner->revokes_pending == 0);
    }
    RTRS_ASSERT(world().guards_untouched());
    return 0;
}
