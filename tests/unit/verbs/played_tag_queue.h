// A TagQueue whose device the test plays itself: it sees each operation as libibverbs would post
// it, and says what completes.
#pragma once

#include <endian.h>
#include <infiniband/tm_types.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rtrs/fabric/verbs/tag_queue.h"
#include "tests/unit/verbs/fake_tag_provider.h"

namespace rtrs {

inline ibv_tm_caps tag_caps(std::uint32_t tags, std::uint32_t operations) {
    return {.max_rndv_hdr_size = 64,
            .max_num_tags = tags,
            .flags = IBV_TM_CAP_RC,
            .max_ops = operations,
            .max_sge = 1};
}

struct PlayedTagQueue : verbs::TagQueueOwner {
    static constexpr std::uint32_t queue_pair = 77;
    struct Added {
        std::uint64_t id = 0;
        std::uint32_t handle = 0;
        std::uint64_t tag = 0;
        std::uint64_t mask = 0;
        MutableBytes buffer{};
    };

    explicit PlayedTagQueue(std::uint32_t capacity, std::uint32_t receives = 8)
        : provider(tag_caps(capacity, 2 * capacity + 1)) {
        provider.operate = [this](ibv_ops_wr& work) { return operate(work); };
        auto made = verbs::TagQueue::create(
            provider.domain(), nullptr,
            {.tags = capacity, .receives = receives, .content_bytes = 100, .senders = 2}, *this);
        REQUIRE(made);
        queue = std::move(*made);
        queue->add_sender(queue_pair, 0);
    }

    virtual ~PlayedTagQueue() = default;

    void on_untagged(std::uint32_t sender, Bytes message) override {
        log += " untagged" + std::to_string(sender) + ":" + std::to_string(message.size());
    }
    void on_tag_queue_broken(const char* what) override { log += std::string(" broken: ") + what; }

    int operate(ibv_ops_wr& work) {
        if (refusing != 0) return refusing;
        CHECK(work.flags == (IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC));
        switch (work.opcode) {
            case IBV_WR_TAG_ADD:
                work.tm.handle = ++handles;
                tags.push_back({.id = work.tm.add.recv_wr_id,
                                .handle = work.tm.handle,
                                .tag = work.tm.add.tag,
                                .mask = work.tm.add.mask,
                                .buffer = provider.buffer_of(work)});
                log += " add" + std::to_string(work.tm.add.tag);
                break;
            case IBV_WR_TAG_DEL:
                log += " remove";
                removed_handle = work.tm.handle;
                break;
            case IBV_WR_TAG_SYNC:
                log += " sync";
                break;
        }
        log += "/" + std::to_string(work.tm.unexpected_cnt);
        operations.emplace_back(work.wr_id, work.opcode);
        return 0;
    }

    // The newest tag of these bits.
    const Added& tag(std::uint64_t bits) const {
        const auto found = std::find_if(tags.rbegin(), tags.rend(),
                                        [&](const Added& one) { return one.tag == bits; });
        REQUIRE(found != tags.rend());
        return *found;
    }
    FakeTagProvider::Completion match_of(const Added& tag, std::uint64_t number,
                                         std::uint32_t bytes) {
        return {.id = tag.id,
                .opcode = IBV_WC_TM_RECV,
                .flags = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID,
                .bytes = bytes,
                .queue_pair = queue_pair,
                .tag = {.tag = tag.tag, .priv = static_cast<std::uint32_t>(number)}};
    }
    FakeTagProvider::Completion received(std::uint8_t operation, std::uint64_t number,
                                         std::uint64_t bits, std::uint32_t behind) {
        const FakeTagProvider::Receive receive = provider.receives.front();
        provider.receives.pop_front();
        const ibv_tmh header = header_of(operation, number, bits);
        std::memcpy(receive.buffer.data(), &header, sizeof header);
        return {.id = receive.id,
                .opcode = operation == IBV_TMH_NO_TAG || operation == IBV_TMH_FIN ? IBV_WC_TM_NO_TAG
                                                                                  : IBV_WC_RECV,
                .bytes = static_cast<std::uint32_t>(sizeof header) + behind,
                .queue_pair = queue_pair};
    }
    static ibv_tmh header_of(std::uint8_t operation, std::uint64_t number, std::uint64_t bits) {
        ibv_tmh header{};
        header.opcode = operation;
        header.app_ctx = htobe32(static_cast<std::uint32_t>(number));
        header.tag = htobe64(bits);
        return header;
    }
    // Of the oldest operation that has not completed.
    FakeTagProvider::Completion operated(bool sync_required = false, bool done = true) {
        const auto [id, opcode] = operations.at(reported++);
        return {.id = id,
                .status = done ? IBV_WC_SUCCESS : IBV_WC_TM_ERR,
                .opcode = opcode == IBV_WR_TAG_ADD   ? IBV_WC_TM_ADD
                          : opcode == IBV_WR_TAG_DEL ? IBV_WC_TM_DEL
                                                     : IBV_WC_TM_SYNC,
                .flags = sync_required ? unsigned{IBV_WC_TM_SYNC_REQ} : 0};
    }
    void complete(const FakeTagProvider::Completion& completion) {
        provider.completions.push_back(completion);
        CHECK(queue->poll());
    }

    FakeTagProvider provider;
    std::unique_ptr<verbs::TagQueue> queue;
    std::string log;
    int refusing = 0;
    std::uint32_t handles = 500;
    std::uint32_t removed_handle = 0;
    std::vector<Added> tags;
    std::vector<std::pair<std::uint64_t, ibv_ops_wr_opcode>> operations;
    std::size_t reported = 0;
};

}  // namespace rtrs
