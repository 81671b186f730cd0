// Peers that know the bytes and keep no rules: raw endpoints to drive a Server or a ClientSession.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "rtrs/base/lazy_memory.h"
#include "rtrs/fabric/sim/sim_world.h"
#include "rtrs/wire/connect.h"
#include "rtrs/wire/immediate.h"
#include "rtrs/wire/info.h"
#include "rtrs/wire/request.h"

namespace simtest {

using namespace rtrs;
using namespace std::chrono_literals;

struct RawConnection final : EndpointHandler {
    static constexpr std::size_t receive_bytes = 4096;
    std::unique_ptr<Endpoint> endpoint;
    std::uint16_t id = 0;
    bool established = false;
    bool disconnected = false;
    bool drained = false;
    std::optional<int> rejected{};  // the errno
    MutableBytes receives{};        // a page each
    std::vector<Completion> received;
    std::function<void(RawConnection&, const Completion&)> on_receive;

    void on_established(Bytes) override { established = true; }
    void on_rejected(Bytes data) override {
        const auto response = ConnectResponseMessage::parse(data);
        rejected = response ? response->error : 0;
    }
    void on_completion(const Completion& completion) override {
        if (completion.opcode == CompletionOpcode::send ||
            completion.status != CompletionStatus::success) {
            return;
        }
        received.push_back(completion);
        if (on_receive) on_receive(*this, completion);
    }
    void on_disconnected(std::error_code) override { disconnected = true; }
    void on_drained() override { drained = true; }

    void post_receives() {
        for (std::size_t i = 0; (i + 1) * receive_bytes <= receives.size(); ++i) {
            (void)endpoint->post_receive(i, {receives.data() + i * receive_bytes, receive_bytes});
        }
    }
    Bytes content(const Completion& completion) const {
        return Bytes(receives).subspan(completion.context * receive_bytes, completion.bytes);
    }
};

// Memory, registered for everything.
struct RawMemory {
    RawMemory(SimHost& host, std::size_t bytes)
        : domain(host.fabric().create_domain().value()),
          memory(bytes),
          region(domain
                     ->register_memory(memory.bytes(),
                                       Access::local | Access::remote_write | Access::remote_read)
                     .value()) {}
    std::unique_ptr<ProtectionDomain> domain;
    LazyMemory memory;
    std::unique_ptr<MemoryRegion> region;
};

class RawClient {
  public:
    RawClient(SimWorld& world, SimHost& host, std::string address)
        : world_(world), host_(host), address_(std::move(address)), raw_(host, 1 << 22) {
        request.path_uuid = Uuid::random(world.random());
        request.session_uuid = Uuid::random(world.random());
    }
    ~RawClient() { end(); }
    void end() {
        for (auto& one : connections) one->endpoint->disconnect();
        world_.run_until(
            [&] {
                for (auto& one : connections) {
                    if (!one->drained) return false;
                }
                return true;
            },
            10s);
        connections.clear();
    }

    // Where the connections to come are dialled.
    void turn_to(std::string address) { address_ = std::move(address); }
    RawConnection& dial_bytes(Bytes private_data) {
        auto& one = *connections.emplace_back(std::make_unique<RawConnection>());
        one.id = static_cast<std::uint16_t>(connections.size() - 1);
        one.receives = raw_.memory.bytes().subspan((1 << 16) * (1 + std::size_t{one.id}), 1 << 16);
        one.endpoint =
            host_.fabric()
                .connect(*raw_.domain, "", address_, private_data, EndpointOptions{}, one)
                .value();
        one.post_receives();
        return one;
    }
    RawConnection& dial(std::uint16_t id) {
        request.connection_id = id;
        std::byte bytes[ConnectRequestMessage::wire_bytes];
        request.emit(bytes);
        return dial_bytes(bytes);
    }
    // All connections, none of the info exchange.
    bool connect(std::uint16_t count) {
        request.connection_count = count;
        for (std::uint16_t id = 0; id < count; ++id) {
            RawConnection& one = dial(id);
            world_.run_until([&] { return one.established || one.rejected; }, 1s);
            if (!one.established) return false;
        }
        return true;
    }
    void send(std::uint16_t connection, Bytes content) {
        std::ranges::copy(content, raw_.memory.data());
        const Segment segment{raw_.memory.data(), static_cast<std::uint32_t>(content.size())};
        const WorkRequest work{.opcode = WorkOpcode::send, .local = {&segment, 1}};
        (void)connections[connection]->endpoint->post({&work, 1});
    }
    void send_info(const std::string& name) {
        std::byte bytes[InfoRequestMessage::wire_bytes] = {};
        bytes[0] = std::byte{0};
        std::memcpy(bytes + 2, name.data(), std::min<std::size_t>(name.size(), 255));
        send(0, bytes);
    }
    // A whole session.
    bool open(std::uint16_t count, const std::string& name, std::uint32_t queue_depth,
              std::uint32_t chunk_bytes) {
        if (!connect(count)) return false;
        send_info(name);
        RawConnection& service = *connections[0];
        if (!world_.run_until([&] { return !service.received.empty() || service.disconnected; },
                              2s) ||
            service.received.empty()) {
            return false;
        }
        const auto view = InfoResponseView::parse(service.content(service.received[0]));
        chunks.resize(queue_depth);
        codec = ImmediateCodec(queue_depth);
        return view && view->chunks(chunks, chunk_bytes);
    }
    // Content into the chunk at `at`, with an immediate of the caller's.
    void write(std::uint16_t connection, const RemoteBuffer& to, Bytes content,
               std::uint32_t immediate) {
        std::byte* from = raw_.memory.data() + 4096;
        std::ranges::copy(content, from);
        const Segment segment{from, static_cast<std::uint32_t>(content.size())};
        const WorkRequest work{.opcode = WorkOpcode::write_immediate,
                               .local = {&segment, content.empty() ? 0u : 1u},
                               .remote = to,
                               .immediate = immediate};
        (void)connections[connection]->endpoint->post({&work, 1});
    }
    RemoteBuffer chunk(std::uint32_t permit, std::uint32_t at = 0) const {
        return {chunks[permit].address + at, chunks[permit].key, 0};
    }
    bool alive() const {
        for (const auto& one : connections) {
            if (one->disconnected || !one->established) return false;
        }
        return true;
    }
    RemoteBuffer own(std::uint32_t bytes) const { return raw_.region->remote(1 << 19, bytes); }

    ConnectRequestMessage request;
    std::vector<std::unique_ptr<RawConnection>> connections;
    std::vector<BufferDescriptor> chunks;
    ImmediateCodec codec{1};

  private:
    SimWorld& world_;
    SimHost& host_;
    std::string address_;
    RawMemory raw_;
};

// Accepts whatever comes; the test says what it answers.
class RawServer final : public ListenerHandler {
  public:
    RawServer(SimWorld& world, SimHost& host) : world_(world), raw_(host, 64 << 20) {
        listener_ = host.fabric().listen("0.0.0.0:1235", *this).value();
    }
    ~RawServer() {
        listener_.reset();
        for (auto& one : connections) one->endpoint->disconnect();
        world_.run_until(
            [&] {
                for (auto& one : connections) {
                    if (!one->drained) return false;
                }
                return true;
            },
            10s);
        connections.clear();
    }

    void on_connect_request(std::unique_ptr<ConnectRequest> request) override {
        const auto message = ConnectRequestMessage::parse(request->private_data());
        if (!message || connections.size() >= 200) return;
        if (!keeps_at.empty() && request->local_address().starts_with(keeps_at)) {
            return kept.push_back(std::move(request));
        }
        if (reject) return request->reject(*reject);
        std::byte reply[ConnectResponseMessage::wire_bytes];
        response.emit(reply);
        auto one = std::make_unique<RawConnection>();
        one->id = message->connection_id;
        one->receives = raw_.memory.bytes().subspan((connections.size() + 1) << 16, 1 << 16);
        one->on_receive = [this](RawConnection& connection, const Completion& completion) {
            if (received) received(connection, completion);
        };
        auto endpoint =
            request->accept(*raw_.domain, connect_reply.empty() ? Bytes(reply) : connect_reply,
                            EndpointOptions{}, *one);
        if (!endpoint) return;
        one->endpoint = std::move(*endpoint);
        one->post_receives();
        connections.push_back(std::move(one));
    }
    void send(RawConnection& connection, Bytes content, std::optional<std::uint32_t> immediate) {
        if (!connection.established) return;
        std::byte* from = raw_.memory.data() + (sends_++ % 16) * 4096;
        std::ranges::copy(content, from);
        const Segment segment{from, static_cast<std::uint32_t>(content.size())};
        const WorkRequest work{.opcode = immediate ? WorkOpcode::send_immediate : WorkOpcode::send,
                               .local = {&segment, content.empty() ? 0u : 1u},
                               .immediate = immediate.value_or(0)};
        (void)connection.endpoint->post({&work, 1});
    }
    void write(RawConnection& connection, const RemoteBuffer& to, std::uint32_t bytes,
               std::uint32_t immediate) {
        if (!connection.established) return;
        const Segment segment{raw_.memory.data(), bytes};
        const WorkRequest work{.opcode = WorkOpcode::write_immediate,
                               .local = {&segment, bytes > 0 ? 1u : 0u},
                               .remote = to,
                               .immediate = immediate};
        (void)connection.endpoint->post({&work, 1});
    }
    // A good info response: 32 MiB from the middle of the memory on.
    std::vector<std::byte> info(std::uint32_t queue_depth, std::uint32_t chunk_bytes) const {
        std::vector<std::byte> bytes(InfoResponseMessage::wire_bytes(1));
        const BufferDescriptor one{raw_.region->remote(32 << 20, 0).address, raw_.region->key(),
                                   queue_depth * chunk_bytes};
        InfoResponseMessage::emit({&one, 1}, bytes);
        return bytes;
    }
    const std::byte* chunk(std::uint32_t permit, std::uint32_t chunk_bytes) const {
        return raw_.memory.data() + (32 << 20) + std::size_t{permit} * chunk_bytes;
    }

    ConnectResponseMessage response;
    std::vector<std::byte> connect_reply;  // instead of response
    std::optional<std::vector<std::byte>> reject{};
    // What comes to this address of the server the test answers itself.
    std::string keeps_at;
    std::vector<std::unique_ptr<ConnectRequest>> kept;
    std::function<void(RawConnection&, const Completion&)> received;
    std::vector<std::unique_ptr<RawConnection>> connections;

  private:
    SimWorld& world_;
    RawMemory raw_;
    std::unique_ptr<Listener> listener_;
    std::size_t sends_ = 0;
};

}  // namespace simtest
