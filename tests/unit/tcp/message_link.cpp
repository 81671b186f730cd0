// The connection of messages over sockets, where a content that is read takes its time to leave.
#include "rtrs/core/message_link.h"

#include "rtrs/core/message_service.h"
#include "tests/unit/tcp/raw_peer.h"

using namespace rtrs;
using namespace rtrs::tcp;
using namespace rtrs::tcp::test;

namespace {

// One end of a session's messages, and whoever comes.
struct End final : ListenerHandler, MessageCoreOwner, MessageLinkOwner {
    End()
        : reactor(make_reactor()),
          fabric(make_tcp_fabric(*reactor, {})),
          core(*reactor, MessageOptions{}, 77, *this),
          listener(fabric->listen("127.0.0.1:0", *this).value()) {}
    ~End() {
        for (auto& link : links) link->disconnect();
        pump(*reactor, [&] { return drained == links.size(); });
        core.close();
    }
    void on_connect_request(std::unique_ptr<ConnectRequest> request) override {
        links.push_back(
            std::make_unique<MessageLink>(core, *this, *fabric, MessageLink::Carried{}));
        REQUIRE(!links.back()->accept(*request, {}));
    }
    void messages_reset() override { ++resets; }
    void message_link_lost(MessageLink&, WasUp, std::error_code, std::string_view) override {
        ++lost;
    }
    void message_link_drained(MessageLink&) override { ++drained; }

    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<Fabric> fabric;
    MessageCore core;
    std::vector<std::unique_ptr<MessageLink>> links;
    std::unique_ptr<Listener> listener;
    int resets = 0;
    int lost = 0;
    std::size_t drained = 0;
};

struct Peer {
    explicit Peer(End& end, std::uint64_t life) : raw(*end.reactor, end.listener->address()) {
        REQUIRE(raw.greet());
        REQUIRE(raw.hear_frame()->header.opcode == Opcode::accept);
        std::array<std::byte, TagHeader::wire_bytes + TagHello::wire_bytes> hello;
        TagHeader{.user_data = static_cast<std::uint32_t>(TagNotice::hello)}.emit(hello);
        TagHello{.window = 4, .eager_bytes = 64, .longest_bytes = 64 << 20, .life = life}.emit(
            MutableBytes(hello).subspan(TagHeader::wire_bytes));
        send(hello);
    }
    void send(Bytes message) { CHECK(raw.say(frame({.opcode = Opcode::send}, message))); }
    // Where the end has put a message that is to be fetched.
    RendezvousHeader rendezvous() {
        for (;;) {
            const auto heard = raw.hear_frame();
            REQUIRE(heard);
            const auto header = TagHeader::parse(heard->payload);
            REQUIRE(header);
            if (header->operation != TagHeaderOperation::rendezvous) continue;
            return *RendezvousHeader::parse(Bytes(heard->payload).subspan(TagHeader::wire_bytes));
        }
    }
    // And takes nothing of it.
    void ask_for(const RendezvousHeader& content) {
        std::array<std::byte, read_request_bytes> request;
        emit_read_request({content.bytes, 1}, request.data());
        CHECK(raw.say(
            frame({.opcode = Opcode::read_request, .address = content.address, .key = content.key},
                  request)));
    }
    RawPeer raw;
};

}  // namespace

TEST_CASE("message link over tcp: what is being read is kept, whatever its reader says") {
    End end;
    Peer peer(end, 5);
    int told = 0;
    REQUIRE(!end.core.send(
        9, MessageBuffer(8 << 20),
        [](void* context, std::error_code) { ++*static_cast<int*>(context); }, &told));
    peer.ask_for(peer.rendezvous());
    std::optional<Peer> other;
    SECTION("that it has finished with it") {
        std::array<std::byte, TagHeader::wire_bytes> finished;
        TagHeader{.operation = TagHeaderOperation::finished, .user_data = 1, .tag = 9}.emit(
            finished);
        peer.send(finished);
    }
    SECTION("that it has been made anew") {
        other.emplace(end, 6);
        pump(*end.reactor, [&] { return end.resets == 1; });
    }
    pump(*end.reactor, [&] { return end.lost == 1 && end.drained == 1; });
    CHECK(told == 1);
    CHECK(end.core.status().registrations == 0);
}
