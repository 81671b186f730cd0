// A client and a server endpoint on the fabric under test, which watch the promises P1, P3 and P4
// in everything that happens to them.
#pragma once

#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/contract/fabric/under_test.h"

namespace rtrs::contract {

// Set while a call into the fabric runs: handlers must not see it (P3).
inline int calls_running = 0;
inline std::vector<std::string> violations;
struct Calling {
    Calling() { ++calls_running; }
    ~Calling() { --calls_running; }
    Calling(const Calling&) = delete;
    Calling& operator=(const Calling&) = delete;
};
inline void promise(bool kept, const char* what) {
    if (!kept) violations.emplace_back(what);
}

class Memory {
  public:
    static constexpr std::size_t page = 4096;
    explicit Memory(std::size_t bytes)
        : bytes_((bytes + page - 1) / page * page),
          data_(static_cast<std::byte*>(std::aligned_alloc(page, bytes_))) {
        fill(std::byte{0});
    }
    ~Memory() { std::free(data_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    std::byte* data() const { return data_; }
    MutableBytes all() const { return {data_, bytes_}; }
    MutableBytes part(std::size_t offset, std::size_t bytes) const {
        return {data_ + offset, bytes};
    }
    Segment segment(std::size_t offset, std::size_t bytes) const {
        return {data_ + offset, static_cast<std::uint32_t>(bytes)};
    }
    void fill(std::byte value) const {
        for (std::byte& each : all()) each = value;
    }
    // Bytes that depend on their place and on salt.
    void pattern(std::size_t offset, std::size_t bytes, unsigned salt) const;
    bool has_pattern(std::size_t offset, std::size_t bytes, unsigned salt) const;
    bool all_are(std::byte value) const;

  private:
    std::size_t bytes_;
    std::byte* data_;
};

// One side of a connection.
class Peer final : public EndpointHandler {
  public:
    ~Peer() { promise(!endpoint || !was_connected() || drained == 1, "P4: on_drained came"); }

    std::error_code post(std::span<const WorkRequest> chain);
    std::error_code post(const WorkRequest& request) { return post({&request, 1}); }
    std::error_code receive(Segment buffer, std::uint64_t context = 0);
    // revokes_pending is 0 once the key is dead.
    void revoke(MemoryWindow window);
    void disconnect(std::error_code why = {});

    bool was_connected() const { return established + rejected + disconnected > 0; }
    // Completions with that opcode.
    std::size_t count(CompletionOpcode opcode) const;
    std::size_t count(CompletionStatus status) const;
    std::vector<Completion> of(CompletionOpcode opcode) const;

    std::unique_ptr<Endpoint> endpoint;
    int established = 0;
    int rejected = 0;
    int disconnected = 0;
    int drained = 0;
    std::error_code reason{};
    std::vector<std::byte> private_data;
    std::vector<Completion> completions;
    std::size_t revokes_pending = 0;
    std::size_t receives = 0;  // completed well
    std::size_t sends = 0;     // completed well
    // Optional.
    std::function<void(const Completion&)> completed;
    std::function<void()> when_established;
    std::function<void()> when_drained;

    void on_established(Bytes data) override;
    void on_rejected(Bytes data) override;
    void on_completion(const Completion& completion) override;
    void on_disconnected(std::error_code why) override;
    void on_drained() override;

  private:
    void watch();
    std::multiset<std::uint64_t> signalled_;
    std::multiset<std::uint64_t> unsignalled_;
    std::multiset<std::uint64_t> receives_;
};

class Acceptor final : public ListenerHandler {
  public:
    std::function<void(std::unique_ptr<ConnectRequest>)> requested;
    void on_connect_request(std::unique_ptr<ConnectRequest> request) override;
};

class Pair {
  public:
    struct Options {
        EndpointOptions endpoint{};
        std::size_t memory_bytes = 1 << 20;
        std::uint32_t server_receives = 16;
        std::uint32_t client_receives = 16;
    };
    static constexpr std::size_t receive_bytes = 256;

    Pair() : Pair(Options{}) {}
    explicit Pair(const Options& options);
    ~Pair();
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;

    // Dials and waits until both sides are established.
    void connect();
    void dial(Bytes private_data);
    void pump(const std::function<bool()>& done);
    // Both have seen on_disconnected and on_drained.
    void pump_drained();
    void post_receives();
    MutableBytes received(Peer& peer, const Completion& completion) const;

    std::unique_ptr<FabricUnderTest> under = make_under_test();
    Options options;
    std::unique_ptr<ProtectionDomain> client_domain, server_domain;
    Memory client_memory, server_memory;
    Memory client_receives, server_receives;
    std::unique_ptr<MemoryRegion> client_region, server_region;
    std::unique_ptr<MemoryRegion> client_receive_region, server_receive_region;
    Acceptor acceptor;
    std::unique_ptr<Listener> listener;
    std::string address;
    std::vector<std::byte> request_data;  // as the server saw it
    std::vector<std::byte> reply_data;    // to send with accept
    Peer client, server;
};

}  // namespace rtrs::contract
