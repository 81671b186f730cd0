#include "tests/contract/fabric/pair.h"

#include <catch2/catch.hpp>

namespace rtrs::contract {

namespace {

std::byte pattern_byte(std::size_t index, unsigned salt) {
    return static_cast<std::byte>((index * 31 + (index >> 8) * 17 + salt * 101 + 7) & 0xff);
}

}  // namespace

void Memory::pattern(std::size_t offset, std::size_t bytes, unsigned salt) const {
    for (std::size_t i = 0; i < bytes; ++i) data_[offset + i] = pattern_byte(i, salt);
}

bool Memory::has_pattern(std::size_t offset, std::size_t bytes, unsigned salt) const {
    for (std::size_t i = 0; i < bytes; ++i) {
        if (data_[offset + i] != pattern_byte(i, salt)) return false;
    }
    return true;
}

bool Memory::all_are(std::byte value) const {
    for (const std::byte each : all()) {
        if (each != value) return false;
    }
    return true;
}

// --- Peer

std::error_code Peer::post(std::span<const WorkRequest> chain) {
    std::error_code error;
    {
        const Calling calling;
        error = endpoint->post(chain);
    }
    if (error) return error;
    for (const WorkRequest& request : chain) {
        auto& set = request.signal == Signal::completion ? signalled_ : unsignalled_;
        set.insert(request.context);
    }
    return {};
}

std::error_code Peer::receive(Segment buffer, std::uint64_t context) {
    const Calling calling;
    const std::error_code error = endpoint->post_receive(context, buffer);
    if (!error) receives_.insert(context);
    return error;
}

void Peer::revoke(MemoryWindow window) {
    const Calling calling;
    if (endpoint->post_revoke(window, 0) == RevokeResult::pending) ++revokes_pending;
}

void Peer::disconnect(std::error_code why) {
    const Calling calling;
    endpoint->disconnect(why);
}

std::size_t Peer::count(CompletionOpcode opcode) const { return of(opcode).size(); }

std::size_t Peer::count(CompletionStatus status) const {
    return static_cast<std::size_t>(
        std::count_if(completions.begin(), completions.end(),
                      [&](const Completion& each) { return each.status == status; }));
}

std::vector<Completion> Peer::of(CompletionOpcode opcode) const {
    std::vector<Completion> found;
    for (const Completion& each : completions) {
        if (each.opcode == opcode) found.push_back(each);
    }
    return found;
}

void Peer::watch() {
    promise(calls_running == 0, "P3: a handler was called from inside a call into the fabric");
    promise(drained == 0, "P4: an event came after on_drained");
}

void Peer::on_established(Bytes data) {
    watch();
    promise(!was_connected(), "P4: on_established was not the first event");
    ++established;
    private_data.assign(data.begin(), data.end());
    if (when_established) when_established();
}

void Peer::on_rejected(Bytes data) {
    watch();
    promise(!was_connected(), "P4: on_rejected was not the first event");
    ++rejected;
    private_data.assign(data.begin(), data.end());
}

void Peer::on_disconnected(std::error_code why) {
    watch();
    promise(disconnected == 0 && rejected == 0, "P4: on_disconnected came twice");
    ++disconnected;
    reason = why;
}

void Peer::on_completion(const Completion& completion) {
    watch();
    promise(was_connected(), "P4: a completion came before the first event");
    completions.push_back(completion);
    const bool good = completion.status == CompletionStatus::success;
    promise(good || disconnected + rejected == 1,
            "P4: a failed completion came before on_disconnected");
    if (completion.opcode == CompletionOpcode::revoke) {
        promise(revokes_pending > 0, "P1: a revoke completed that was not pending");
        --revokes_pending;
    } else if (completion.opcode == CompletionOpcode::send) {
        auto at = signalled_.find(completion.context);
        if (at != signalled_.end()) {
            signalled_.erase(at);
        } else {
            at = unsignalled_.find(completion.context);
            promise(at != unsignalled_.end(), "P1: a request completed twice, or was never posted");
            promise(!good, "P1: an unsignalled request reported its success");
            if (at != unsignalled_.end()) unsignalled_.erase(at);
        }
        if (good) ++sends;
    } else {
        const auto at = receives_.find(completion.context);
        promise(at != receives_.end(), "P1: a receive completed twice, or was never posted");
        if (at != receives_.end()) receives_.erase(at);
        if (good) ++receives;
    }
    if (completed) completed(completion);
}

void Peer::on_drained() {
    watch();
    promise(disconnected + rejected == 1, "P4: on_drained came before the end was told");
    promise(signalled_.empty(), "P1: a signalled request never completed");
    promise(receives_.empty(), "P1: a receive never completed");
    promise(revokes_pending == 0, "P1: a revoke never completed");
    ++drained;
    if (when_drained) when_drained();
}

void Acceptor::on_connect_request(std::unique_ptr<ConnectRequest> request) {
    promise(calls_running == 0, "P3: on_connect_request from inside a call into the fabric");
    requested(std::move(request));
}

// --- Pair

Pair::Pair(const Options& wanted)
    : options(wanted),
      client_memory(wanted.memory_bytes),
      server_memory(wanted.memory_bytes),
      client_receives(std::max<std::size_t>(1, wanted.client_receives) * receive_bytes),
      server_receives(std::max<std::size_t>(1, wanted.server_receives) * receive_bytes) {
    violations.clear();
    client_domain = got(under->client().create_domain());
    server_domain = got(under->server().create_domain());
    const Access remote = Access::remote_write | Access::remote_read;
    client_region = got(client_domain->register_memory(client_memory.all(), remote));
    server_region = got(server_domain->register_memory(server_memory.all(), remote));
    client_receive_region =
        got(client_domain->register_memory(client_receives.all(), Access::local));
    server_receive_region =
        got(server_domain->register_memory(server_receives.all(), Access::local));
    acceptor.requested = [this](std::unique_ptr<ConnectRequest> request) {
        const Bytes data = request->private_data();
        request_data.assign(data.begin(), data.end());
        const Calling calling;
        auto accepted = request->accept(*server_domain, reply_data, options.endpoint, server);
        if (accepted) server.endpoint = std::move(*accepted);
    };
    listener = got(under->server().listen(under->server_address(), acceptor));
    address = listener->address();
}

Pair::~Pair() {
    for (Peer* peer : {&client, &server}) {
        if (peer->endpoint && peer->drained == 0) peer->endpoint->disconnect();
    }
    under->pump_until([&] {
        return (!client.endpoint || client.drained == 1) &&
               (!server.endpoint || server.drained == 1);
    });
    for (const std::string& violation : violations) UNSCOPED_INFO(violation);
    CHECK(violations.empty());
    client.endpoint.reset();
    server.endpoint.reset();
}

void Pair::pump(const std::function<bool()>& done) { REQUIRE(under->pump_until(done)); }

void Pair::dial(Bytes private_data) {
    const Calling calling;
    client.endpoint = got(under->client().connect(*client_domain, "", address, private_data,
                                                  options.endpoint, client));
}

void Pair::connect() {
    dial({});
    pump([&] { return client.established == 1 && server.established == 1; });
    post_receives();
}

void Pair::post_receives() {
    for (std::uint32_t i = 0; i < options.client_receives; ++i) {
        REQUIRE(!client.receive(client_receives.segment(i * receive_bytes, receive_bytes), i));
    }
    for (std::uint32_t i = 0; i < options.server_receives; ++i) {
        REQUIRE(!server.receive(server_receives.segment(i * receive_bytes, receive_bytes), i));
    }
}

MutableBytes Pair::received(Peer& peer, const Completion& completion) const {
    const Memory& memory = &peer == &client ? client_receives : server_receives;
    return memory.part(completion.context * receive_bytes, completion.bytes);
}

void Pair::pump_drained() {
    pump([&] { return client.drained == 1 && server.drained == 1; });
    CHECK(client.disconnected == 1);
    CHECK(server.disconnected == 1);
}

}  // namespace rtrs::contract
