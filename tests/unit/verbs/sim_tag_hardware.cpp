#include "tests/unit/verbs/sim_tag_hardware.h"

#include <endian.h>
#include <infiniband/tm_types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rtrs/base/assert.h"

namespace rtrs {
namespace {

ibv_tmh header_of(const TagMessage& message, ibv_tmh_op operation) {
    ibv_tmh header{};
    header.opcode = static_cast<std::uint8_t>(operation);
    header.app_ctx = htobe32(static_cast<std::uint32_t>(message.number));
    header.tag = htobe64(message.tag);
    return header;
}

ibv_rvh from_of(const TagMessage& message) {
    ibv_rvh from{};
    from.va = htobe64(SimTagHardware::address_of(message));
    from.rkey = htobe32(message.sender + 5);
    from.len = htobe32(static_cast<std::uint32_t>(message.bytes));
    return from;
}

template <typename Value>
void append(std::vector<std::byte>& bytes, const Value& value) {
    const std::size_t before = bytes.size();
    bytes.resize(before + sizeof value);
    std::memcpy(bytes.data() + before, &value, sizeof value);
}

std::vector<std::byte> content(const TagMessage& message) {
    std::vector<std::byte> bytes(message.bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = SimTagHardware::content_of(message, i);
    }
    return bytes;
}

std::vector<std::byte> announcement(const TagMessage& message) {
    std::vector<std::byte> bytes;
    append(bytes, header_of(message, IBV_TMH_RNDV));
    append(bytes, from_of(message));
    return bytes;
}

std::vector<std::byte> eager(const TagMessage& message) {
    std::vector<std::byte> bytes;
    append(bytes, header_of(message, IBV_TMH_EAGER));
    const auto behind = content(message);
    bytes.insert(bytes.end(), behind.begin(), behind.end());
    return bytes;
}

std::uint32_t write(MutableBytes buffer, const std::vector<std::byte>& bytes) {
    RTRS_ASSERT(bytes.size() <= buffer.size());
    std::ranges::fill(buffer, std::byte{0xee});
    std::ranges::copy(bytes, buffer.begin());
    return static_cast<std::uint32_t>(bytes.size());
}

}  // namespace

SimTagHardware::SimTagHardware(const ibv_tm_caps& caps, std::uint64_t seed, SimTagDevice::Flaw flaw,
                               SyncReports reports)
    : provider_(caps),
      operations_max_(caps.max_ops),
      sim_(caps.max_num_tags, seed, flaw),
      random_(seed + 1),
      reports_(reports),
      tags_(caps.max_num_tags) {
    sim_.set_handler(*this);
    provider_.operate = [this](ibv_ops_wr& work) { return operate(work); };
    provider_.polled = [this](const FakeTagProvider::Completion& completion) {
        polled(completion);
    };
}

void SimTagHardware::send(const TagMessage& message) {
    if (random_.chance(1, 20)) {
        events_.push_back({.kind = Event::Kind::untagged, .message = message});
    }
    sim_.send(message);
}

int SimTagHardware::operate(ibv_ops_wr& work) {
    RTRS_ASSERT(work.flags == (IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC));
    if (operations_.size() == operations_max_) return ENOMEM;
    TagOperation operation{.handled = work.tm.unexpected_cnt};
    if (work.opcode == IBV_WR_TAG_ADD) {
        std::vector<std::uint32_t> free;
        for (std::uint32_t i = 0; i < tags_.size(); ++i) {
            if (tags_[i].awaited == 0) free.push_back(i);
        }
        if (free.empty()) return ENOMEM;
        operation.kind = TagOperation::Kind::add;
        operation.slot = free[random_.below(free.size())];
        operation.receive.pattern = {.tag = work.tm.add.tag, .mask = work.tm.add.mask};
        tags_[operation.slot] = {
            .id = work.tm.add.recv_wr_id, .buffer = provider_.buffer_of(work), .awaited = 2};
        work.tm.handle = first_handle + operation.slot;
    } else if (work.opcode == IBV_WR_TAG_DEL) {
        operation.kind = TagOperation::Kind::remove;
        operation.slot = work.tm.handle - first_handle;
        // Nothing of this handle is awaited: it may be another tag's by now.
        if (operation.slot >= tags_.size() || tags_[operation.slot].awaited == 0) return EINVAL;
        ++tags_[operation.slot].awaited;
    }
    operations_.push_back({.id = work.wr_id, .opcode = work.opcode, .handle = operation.slot});
    sim_.post(operation);
    return 0;
}

void SimTagHardware::polled(const FakeTagProvider::Completion& completion) {
    if (completion.ends != 0) tags_[completion.handle].awaited -= completion.ends;
}

void SimTagHardware::on_device_match(std::uint32_t slot, const TagMessage& message) {
    events_.push_back({.kind = Event::Kind::match, .handle = slot, .message = message});
}

void SimTagHardware::on_device_unexpected(const TagMessage& message) {
    events_.push_back({.kind = Event::Kind::unexpected, .message = message});
}

void SimTagHardware::on_device_operation(const TagOperationResult& result) {
    const Operation operation = operations_.front();
    operations_.pop_front();
    FakeTagProvider::Completion completion{.id = operation.id, .handle = operation.handle};
    bool differ = result.sync_required;
    switch (operation.opcode) {
        case IBV_WR_TAG_ADD:
            completion.opcode = IBV_WC_TM_ADD;
            completion.ends = 1;
            break;
        case IBV_WR_TAG_DEL:
            completion.opcode = IBV_WC_TM_DEL;
            if (!result.done) completion.status = IBV_WC_TM_ERR;
            // Its match is not awaited any more.
            completion.ends = result.done ? 2 : 1;
            if (reports_ == SyncReports::like_mlx5) differ = random_.chance(1, 2);
            break;
        case IBV_WR_TAG_SYNC:
            completion.opcode = IBV_WC_TM_SYNC;
            if (reports_ == SyncReports::like_mlx5) differ = false;
            break;
    }
    if (differ) completion.flags |= IBV_WC_TM_SYNC_REQ;
    provider_.completions.push_back(completion);
}

bool SimTagHardware::step() {
    // Contents take their time.
    if (!late_.empty() && random_.chance(1, 16)) return come_late();
    const bool sim_first = random_.chance(1, 2);
    if (sim_first && sim_.step()) return true;
    return happen() || sim_.step() || come_late();
}

bool SimTagHardware::come_late() {
    if (late_.empty()) return false;
    const auto one = late_.begin() + static_cast<std::ptrdiff_t>(random_.below(late_.size()));
    provider_.completions.push_back(*one);
    late_.erase(one);
    return true;
}

bool SimTagHardware::happen() {
    if (events_.empty()) return false;
    const Event event = events_.front();
    if (event.kind == Event::Kind::match) {
        events_.pop_front();
        match(event);
        return true;
    }
    if (provider_.receives.empty()) {
        ++figures_.without_receive;
        return false;
    }
    events_.pop_front();
    arrive(event);
    return true;
}

void SimTagHardware::match(const Event& event) {
    const Tag& tag = tags_[event.handle];
    FakeTagProvider::Completion first{
        .id = tag.id,
        .opcode = IBV_WC_TM_RECV,
        .flags = IBV_WC_TM_MATCH,
        .queue_pair = queue_pair_of(event.message.sender),
        .tag = {.tag = event.message.tag, .priv = static_cast<std::uint32_t>(event.message.number)},
        .handle = event.handle};
    std::vector<std::byte> bytes = content(event.message);
    if (is_rendezvous(event.message)) {
        ++figures_.read;
        if (random_.chance(1, 2)) {
            --figures_.read;
            ++figures_.announced;
            bytes = announcement(event.message);
            first.status = IBV_WC_TM_RNDV_INCOMPLETE;
        }
    }
    auto second = first;
    second.flags = IBV_WC_TM_DATA_VALID;
    second.bytes = write(tag.buffer, bytes);
    second.ends = 1;
    second.tag = {};
    if (random_.chance(1, 2)) {
        second.tag = first.tag;
        second.flags |= IBV_WC_TM_MATCH;
        provider_.completions.push_back(second);
        return;
    }
    ++figures_.late;
    second.status = IBV_WC_SUCCESS;
    provider_.completions.push_back(first);
    late_.push_back(second);
}

void SimTagHardware::arrive(const Event& event) {
    const FakeTagProvider::Receive receive = provider_.receives.front();
    provider_.receives.pop_front();
    std::vector<std::byte> bytes;
    FakeTagProvider::Completion completion{.id = receive.id,
                                           .queue_pair = queue_pair_of(event.message.sender)};
    if (event.kind == Event::Kind::untagged) {
        ++figures_.untagged;
        completion.opcode = IBV_WC_TM_NO_TAG;
        append(bytes,
               header_of(event.message, random_.chance(1, 2) ? IBV_TMH_NO_TAG : IBV_TMH_FIN));
    } else {
        completion.opcode = random_.chance(1, 2) ? IBV_WC_RECV : IBV_WC_TM_RECV;
        bytes = is_rendezvous(event.message) ? announcement(event.message) : eager(event.message);
    }
    completion.bytes = write(receive.buffer, bytes);
    provider_.completions.push_back(completion);
}

}  // namespace rtrs
