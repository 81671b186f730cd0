// The rules of rtrs/fabric/verbs/tag_queue.h, and what a device can do wrong.
#include "rtrs/fabric/verbs/tag_queue.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <functional>

#include "tests/unit/verbs/played_tag_queue.h"

using namespace rtrs;
using verbs::TagQueue;
using Completion = FakeTagProvider::Completion;

namespace {

struct Nobody final : verbs::TagQueueOwner {
    void on_untagged(std::uint32_t, Bytes) override { FAIL("untagged"); }
    void on_tag_queue_broken(const char*) override { FAIL("broken"); }
};

// What comes of it, as text; no matcher.
struct Queue final : PlayedTagQueue, TagDeviceHandler {
    explicit Queue(std::uint32_t capacity = 4, std::uint32_t receives = 8)
        : PlayedTagQueue(capacity, receives) {
        queue->set_handler(*this);
    }
    void on_device_match(std::uint32_t slot, const TagMessage& message) override {
        const verbs::TagContent& content = queue->content();
        log += " match" + std::to_string(slot) + "<" + std::to_string(message.number) + "," +
               std::to_string(message.tag) + "," + std::to_string(message.bytes) +
               (content.announced ? " announced>" : ">");
        if (!content.announced) CHECK(content.bytes.size() == message.bytes);
        if (inside) inside();
    }
    void on_device_unexpected(const TagMessage& message) override {
        const verbs::TagContent& content = queue->content();
        log += " unexpected<" + std::to_string(message.sender) + ":" +
               std::to_string(message.number) + "," + std::to_string(message.bytes) +
               (content.announced ? " announced>" : ">");
        if (inside) inside();
    }
    void on_device_operation(const TagOperationResult& result) override {
        log += result.kind == TagOperation::Kind::add      ? " added"
               : result.kind == TagOperation::Kind::remove ? " removed"
                                                           : " synced";
        log += std::to_string(result.slot) + (result.done ? "" : " late") +
               (result.sync_required ? " differ" : "");
    }

    void add(std::uint32_t slot, Tag bits) {
        queue->post(
            {.kind = TagOperation::Kind::add, .slot = slot, .receive = {.pattern = {.tag = bits}}});
    }
    void remove(std::uint32_t slot, std::uint32_t handled = 0) {
        queue->post({.kind = TagOperation::Kind::remove, .slot = slot, .handled = handled});
    }
    void sync(std::uint32_t handled) {
        queue->post({.kind = TagOperation::Kind::sync, .handled = handled});
    }
    std::string take() { return std::exchange(log, {}); }

    std::function<void()> inside;
};

std::error_code create_with(FakeTagProvider& provider, const verbs::TagQueueOptions& options = {}) {
    Nobody nobody;
    const auto made = TagQueue::create(provider.domain(), nullptr, options, nobody);
    return made ? std::error_code{} : made.error();
}

}  // namespace

TEST_CASE("tag queue: only a device that says so matches tags") {
    auto caps = tag_caps(10, 21);
    SECTION("it does") {
        FakeTagProvider provider(caps);
        const auto capability = verbs::tag_capability(provider.context());
        CHECK(capability);
        CHECK(capability.tags == 10);
        CHECK(capability.operations == 21);
        CHECK_FALSE(create_with(provider));
        return;
    }
    SECTION("no tags") { caps.max_num_tags = 0; }
    SECTION("not on reliable connections") { caps.flags = 0; }
    SECTION("no buffers") { caps.max_sge = 0; }
    SECTION("too few operations for a single tag") { caps.max_ops = 2; }
    FakeTagProvider provider(caps);
    CHECK_FALSE(verbs::tag_capability(provider.context()));
    CHECK(create_with(provider) == std::errc::operation_not_supported);
    CHECK(provider.objects() == 0);
}

TEST_CASE("tag queue: it is made as it is used") {
    FakeTagProvider provider(tag_caps(1000, 50));
    Nobody nobody;
    const auto made =
        TagQueue::create(provider.domain(), nullptr, {.tags = 40, .receives = 9}, nobody);
    REQUIRE(made);
    // Two operations for each tag, and one more.
    CHECK((*made)->capacity() == 24);
    const auto& queue = provider.queue_attributes();
    CHECK(queue.srq_type == IBV_SRQT_TM);
    CHECK(queue.tm_cap.max_num_tags == 24);
    CHECK(queue.tm_cap.max_ops == 49);
    CHECK(queue.attr.max_wr == 9);
    CHECK(queue.pd == provider.domain());
    CHECK(queue.cq == (*made)->completion_queue());
    CHECK(provider.completion_attributes().cqe == 49 + 48 + 9);
    CHECK(provider.receives.size() == 9);
    CHECK_FALSE((*made)->arm());
    CHECK(provider.armed == 1);
}

TEST_CASE("tag queue: what cannot be made leaves nothing behind") {
    using Call = FakeTagProvider::Call;
    const auto call = GENERATE(Call::query_device, Call::register_memory, Call::create_completions,
                               Call::create_queue, Call::post_receive);
    FakeTagProvider provider(tag_caps(4, 9));
    provider.failing = call;
    CHECK(create_with(provider));
    CHECK(provider.objects() == 0);
}

TEST_CASE("tag queue: senseless options are refused") {
    verbs::TagQueueOptions options;
    SECTION("tags") { options.tags = 0; }
    SECTION("receives") { options.receives = 0; }
    SECTION("senders") { options.senders = 0; }
    SECTION("content") { options.content_bytes = 0; }
    SECTION("more receives than 65536") { options.receives = 65537; }
    SECTION("more content than 16 MiB") { options.content_bytes = (16 << 20) + 1; }
    FakeTagProvider provider(tag_caps(4, 9));
    CHECK(create_with(provider, options) == std::errc::invalid_argument);
}

TEST_CASE("tag queue: Q1 operations name the count, and are reported in their order") {
    Queue side;
    side.add(2, 7);
    side.sync(5);
    CHECK(side.take() == " add7/0 sync/5");
    side.complete(side.operated(true));
    side.complete(side.operated());
    CHECK(side.take() == " added2 differ synced0");
    SECTION("another order") {
        side.sync(6);
        side.sync(7);
        ++side.reported;
        side.complete(side.operated());
        CHECK(side.take() ==
              " sync/6 sync/7 broken: an operation was reported that is not the oldest");
    }
    SECTION("twice") {
        --side.reported;
        side.complete(side.operated());
        CHECK(side.take() == " broken: an operation was reported that is not the oldest");
    }
    SECTION("another kind") {
        side.sync(6);
        Completion other = side.operated();
        other.opcode = IBV_WC_TM_ADD;
        side.complete(other);
        CHECK(side.take() == " sync/6 broken: another operation was reported");
    }
    SECTION("a failure") {
        side.sync(6);
        side.complete(side.operated(false, false));
        CHECK(side.take() == " sync/6 broken: an operation on the device's tags failed");
    }
}

TEST_CASE("tag queue: a tag has its mask") {
    Queue side;
    side.queue->post({.kind = TagOperation::Kind::add,
                      .slot = 3,
                      .receive = {.pattern = {.tag = 0xab00, .mask = 0xff00}}});
    CHECK(side.tag(0xab00).mask == 0xff00);
    Completion match = side.match_of(side.tag(0xab00), 1, 3);
    match.tag.tag = 0xab12;
    side.complete(match);
    CHECK(side.take() == " add43776/0 match3<1,43794,3>");
}

TEST_CASE("tag queue: Q2 what came after a match waits for its content") {
    Queue side;
    side.add(0, 7);
    side.add(1, 8);
    side.take();
    Completion first = side.match_of(side.tag(7), 1, 0);
    first.flags = IBV_WC_TM_MATCH;
    side.complete(first);
    side.complete(side.match_of(side.tag(8), 2, 5));
    side.complete(side.received(IBV_TMH_EAGER, 3, 9, 6));
    side.complete(side.received(IBV_TMH_FIN, 4, 9, 0));
    CHECK(side.take().empty());
    // What happens to the tags does not wait.
    side.complete(side.operated());
    CHECK(side.take() == " added0");
    Completion second = first;
    second.flags = IBV_WC_TM_DATA_VALID;
    second.bytes = 4;
    second.tag = {};
    side.complete(second);
    CHECK(side.take() == " match0<1,7,4> match1<2,8,5> unexpected<0:3,6> untagged0:16");
}

TEST_CASE("tag queue: Q3 a tag whose match is known is not removed in the device") {
    Queue side;
    side.add(0, 7);
    side.add(1, 8);
    side.complete(side.operated());
    side.complete(side.operated());
    Completion first = side.match_of(side.tag(7), 1, 0);
    first.flags = IBV_WC_TM_MATCH;
    side.complete(first);
    side.complete(side.match_of(side.tag(8), 2, 5));
    side.take();
    side.remove(1, 3);
    CHECK(side.take() == " sync/3");
    side.complete(side.operated());
    CHECK(side.take() == " removed1 late");
    first.flags = IBV_WC_TM_DATA_VALID;
    side.complete(first);
    CHECK(side.take() == " match0<1,7,0> match1<2,8,5>");
}

TEST_CASE("tag queue: Q4 a removal says only whether it came too late") {
    Queue side;
    side.add(0, 7);
    side.add(1, 8);
    side.complete(side.operated());
    side.complete(side.operated());
    side.take();
    side.remove(0, 1);
    CHECK(side.removed_handle == side.tag(7).handle);
    side.remove(1, 1);
    CHECK(side.removed_handle == side.tag(8).handle);
    side.complete(side.operated(true));
    side.complete(side.operated(true, false));
    side.complete(side.match_of(side.tag(8), 1, 3));
    CHECK(side.take() == " remove/1 remove/1 removed0 removed1 late match1<1,8,3>");
    SECTION("its place is used again, and its old name is not") {
        const auto old = side.tag(7);
        side.add(0, 9);
        side.take();
        side.complete(side.match_of(old, 2, 3));
        CHECK(side.take() == " broken: a tag was matched that the device does not hold");
    }
}

TEST_CASE("tag queue: a content keeps its buffer until its event has returned") {
    Queue side(1);
    side.add(0, 7);
    side.complete(side.operated());
    const MutableBytes used = side.tag(7).buffer;
    side.inside = [&] {
        CHECK(side.queue->content().bytes.data() == used.data());
        side.add(0, 8);
    };
    side.complete(side.match_of(side.tag(7), 1, 3));
    CHECK(side.tag(8).buffer.data() != used.data());
    side.inside = nullptr;
    side.complete(side.operated());
    side.complete(side.match_of(side.tag(8), 2, 3));
    side.add(0, 9);
    CHECK(side.tag(9).buffer.data() == side.tag(8).buffer.data());
}

TEST_CASE("tag queue: a receive is posted again when its event has returned") {
    Queue side(1, 2);
    const auto before = side.provider.receives.front().id;
    side.inside = [&] { CHECK(side.provider.receives.size() == 1); };
    side.complete(side.received(IBV_TMH_EAGER, 1, 9, 100));
    CHECK(side.provider.receives.size() == 2);
    CHECK(side.provider.receives.back().id == before);
    CHECK(side.take() == " unexpected<0:1,100>");
}

TEST_CASE("tag queue: a rendezvous") {
    Queue side;
    side.add(0, 7);
    side.complete(side.operated());
    side.take();
    ibv_rvh from{};
    from.va = htobe64(0x1122334455667788);
    from.rkey = htobe32(99);
    from.len = htobe32(1 << 20);
    const auto is_the_announced = [&] {
        CHECK(side.queue->content().from ==
              RendezvousHeader{.address = 0x1122334455667788, .key = 99, .bytes = 1 << 20});
    };
    SECTION("that nobody waits for") {
        side.inside = is_the_announced;
        std::memcpy(side.provider.receives.front().buffer.data() + 16, &from, sizeof from);
        side.complete(side.received(IBV_TMH_RNDV, 1, 9, sizeof from));
        CHECK(side.take() == " unexpected<0:1,1048576 announced>");
    }
    SECTION("that nobody waits for, and that is cut off") {
        side.complete(side.received(IBV_TMH_RNDV, 1, 9, sizeof from - 1));
        CHECK(side.take() == " broken: a rendezvous has no valid header");
    }
    SECTION("that the device has read") {
        side.complete(side.match_of(side.tag(7), 1, 90));
        CHECK(side.take() == " match0<1,7,90>");
    }
    const auto& tag = side.tag(7);
    Completion match = side.match_of(tag, 1, 32);
    match.status = IBV_WC_TM_RNDV_INCOMPLETE;
    const auto scatter = [&](std::uint8_t operation, std::uint64_t number, Tag bits) {
        const ibv_tmh header = PlayedTagQueue::header_of(operation, number, bits);
        std::memcpy(tag.buffer.data(), &header, sizeof header);
        std::memcpy(tag.buffer.data() + sizeof header, &from, sizeof from);
    };
    SECTION("that is matched, and to be read") {
        side.inside = is_the_announced;
        scatter(IBV_TMH_RNDV, 1, 7);
        side.complete(match);
        CHECK(side.take() == " match0<1,7,1048576 announced>");
    }
    SECTION("that is matched, and whose headers come later") {
        side.inside = is_the_announced;
        match.flags = IBV_WC_TM_MATCH;
        side.complete(match);
        CHECK(side.take().empty());
        scatter(IBV_TMH_RNDV, 1, 7);
        match.status = IBV_WC_SUCCESS;
        match.flags = IBV_WC_TM_DATA_VALID;
        side.complete(match);
        CHECK(side.take() == " match0<1,7,1048576 announced>");
    }
    SECTION("that the device gave up to read") {
        side.inside = is_the_announced;
        match.status = IBV_WC_SUCCESS;
        match.flags = IBV_WC_TM_MATCH;
        side.complete(match);
        scatter(IBV_TMH_RNDV, 1, 7);
        match.status = IBV_WC_TM_RNDV_INCOMPLETE;
        match.flags = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;
        side.complete(match);
        CHECK(side.take() == " match0<1,7,1048576 announced>");
    }
    SECTION("whose headers are not those of the match") {
        SECTION("eager") { scatter(IBV_TMH_EAGER, 1, 7); }
        SECTION("another message") { scatter(IBV_TMH_RNDV, 2, 7); }
        SECTION("another tag") { scatter(IBV_TMH_RNDV, 1, 8); }
        SECTION("cut off") {
            scatter(IBV_TMH_RNDV, 1, 7);
            match.bytes = 31;
        }
        side.complete(match);
        CHECK(side.take() == " broken: an announcement is not that of its match");
    }
}

TEST_CASE("tag queue: Q5 a completion that cannot be ends the use of the queue") {
    Queue side;
    side.add(0, 7);
    side.complete(side.operated());
    side.take();
    Completion match = side.match_of(side.tag(7), 1, 3);
    std::string expected;
    SECTION("no work of ours") {
        match.id = 12345;
        expected = "a completion names no work of ours";
    }
    SECTION("a tag that is none") {
        match.id += 4;
        expected = "a tag was matched that is none";
    }
    SECTION("a tag that the device does not hold") {
        match.id += 1;
        expected = "a tag was matched that the device does not hold";
    }
    SECTION("a failure") {
        match.status = IBV_WC_LOC_LEN_ERR;
        expected = "a receive with a tag failed";
    }
    SECTION("another opcode") {
        match.opcode = IBV_WC_RECV;
        expected = "a tag was matched by something else";
    }
    SECTION("nobody's message") {
        match.queue_pair = 78;
        expected = "a message of nobody was matched";
    }
    SECTION("a content without a match") {
        match.flags = IBV_WC_TM_DATA_VALID;
        expected = "a content has no match";
    }
    SECTION("longer than its buffer") {
        match.bytes = 10000;
        expected = "a content is longer than its buffer";
    }
    SECTION("a second match") {
        match.flags = IBV_WC_TM_MATCH;
        side.complete(match);
        expected = "a tag was matched twice";
    }
    SECTION("after it was whole") {
        side.complete(match);
        CHECK(side.take() == " match0<1,7,3>");
        expected = "a tag was matched that the device does not hold";
    }
    SECTION("removed, and matched before") {
        side.remove(0);
        side.complete(match);
        side.take();
        match = side.operated();
        expected = "a tag was both matched and removed";
    }
    SECTION("a receive that is not posted") {
        match = side.received(IBV_TMH_EAGER, 1, 9, 1);
        match.id += 8;
        expected = "a receive was filled that is not posted";
    }
    SECTION("a receive that failed") {
        match = side.received(IBV_TMH_EAGER, 1, 9, 1);
        match.status = IBV_WC_WR_FLUSH_ERR;
        expected = "a receive failed";
    }
    SECTION("a receive of something else") {
        match = side.received(IBV_TMH_EAGER, 1, 9, 1);
        match.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        expected = "a receive was filled by something else";
    }
    SECTION("a receive of a match") {
        match = side.received(IBV_TMH_EAGER, 1, 9, 1);
        match.flags = IBV_WC_TM_MATCH;
        expected = "a receive was filled by something else";
    }
    SECTION("a receive of nobody's") {
        match = side.received(IBV_TMH_EAGER, 1, 9, 1);
        match.queue_pair = 1;
        expected = "a message of nobody arrived";
    }
    SECTION("a receive that is too long") {
        match = side.received(IBV_TMH_EAGER, 1, 9, 10000);
        expected = "a message is longer than its buffer";
    }
    SECTION("a header that is cut off") {
        match = side.received(IBV_TMH_EAGER, 1, 9, 0);
        match.bytes = 15;
        expected = "a message has no valid header";
    }
    SECTION("a header that is none") {
        match = side.received(9, 1, 9, 0);
        expected = "a message has no valid header";
    }
    SECTION("a header without a tag that was counted") {
        match = side.received(IBV_TMH_FIN, 1, 9, 0);
        match.opcode = IBV_WC_TM_RECV;
        expected = "a message without a tag was counted";
    }
    side.complete(match);
    CHECK(side.take() == " broken: " + expected);
    // It is said once, and nothing happens any more.
    side.provider.completions.push_back(side.match_of(side.tag(7), 1, 3));
    CHECK_FALSE(side.queue->poll());
    side.sync(1);
    CHECK(side.take().empty());
}

TEST_CASE("tag queue: what the device refuses is told in a turn of its own") {
    Queue side;
    SECTION("an operation") {
        side.refusing = ENOMEM;
        side.add(0, 7);
        CHECK(side.take().empty());
        CHECK(side.queue->poll());
        CHECK(side.take() == " broken: the device refused an operation on its tags");
    }
    SECTION("a receive") {
        side.provider.failing = FakeTagProvider::Call::post_receive;
        side.complete(side.received(IBV_TMH_EAGER, 1, 9, 1));
        CHECK(side.take() == " unexpected<0:1,1> broken: the device refused a receive");
    }
    SECTION("to be polled") {
        side.provider.failing = FakeTagProvider::Call::start_poll;
        CHECK(side.queue->poll());
        CHECK(side.take() == " broken: the completion queue cannot be read");
    }
    CHECK_FALSE(side.queue->poll());
}

TEST_CASE("tag queue: numbers of messages go on where 32 bits end") {
    Queue side;
    side.queue->add_sender(5, 1, 0xfffffffe);
    const auto arrive = [&](std::uint32_t low_bits) {
        Completion completion = side.received(IBV_TMH_EAGER, low_bits, 9, 0);
        completion.queue_pair = 5;
        side.complete(completion);
        return side.take();
    };
    CHECK(arrive(0xffffffff) == " unexpected<1:4294967295,0>");
    CHECK(arrive(0) == " unexpected<1:4294967296,0>");
    CHECK(arrive(1) == " unexpected<1:4294967297,0>");
    // Again, and too early: whoever matches will refuse them.
    CHECK(arrive(0xffffffff) == " unexpected<1:4294967295,0>");
    CHECK(arrive(4) == " unexpected<1:4294967300,0>");
    // Before the first of the other sender.
    side.complete(side.received(IBV_TMH_EAGER, 0xfffffffb, 9, 0));
    CHECK(side.take() == " unexpected<0:0,0>");
}

TEST_CASE("tag queue: more completions than a turn takes stay for the next") {
    Queue side(1, 20);
    for (std::uint64_t number = 1; number <= 20; ++number) {
        side.provider.completions.push_back(side.received(IBV_TMH_EAGER, number, 9, 0));
    }
    CHECK(side.queue->poll());
    CHECK(side.provider.completions.size() == 4);
    CHECK(side.queue->poll());
    CHECK(side.provider.completions.empty());
    CHECK_FALSE(side.queue->poll());
    CHECK(side.log.ends_with(" unexpected<0:20,0>"));
}
