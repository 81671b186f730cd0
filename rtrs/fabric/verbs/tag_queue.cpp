#include "rtrs/fabric/verbs/tag_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "rtrs/base/error.h"

namespace rtrs::verbs {
namespace {

constexpr std::uint32_t headers_bytes = TagHeader::wire_bytes + RendezvousHeader::wire_bytes;
constexpr std::uint32_t content_bytes_max = 1 << 24;
constexpr std::uint32_t entries_max = 1 << 16;
constexpr std::uint32_t generation_mask = 0xffffff;
constexpr std::size_t completions_per_turn = 16;

// Their headers may be scattered into any buffer.
std::uint32_t buffer_bytes_for(std::uint32_t content_bytes) noexcept {
    return (content_bytes + headers_bytes + 63) & ~std::uint32_t{63};
}

}  // namespace

TagCapability tag_capability(ibv_context* device) noexcept {
    ibv_device_attr_ex attributes{};
    if (ibv_query_device_ex(device, nullptr, &attributes) != 0) return {};
    const ibv_tm_caps& tags = attributes.tm_caps;
    // Two operations for each tag, and one more: what device.h allows to be outstanding.
    if ((tags.flags & IBV_TM_CAP_RC) == 0 || tags.max_sge == 0 || tags.max_ops < 3) return {};
    return {.tags = tags.max_num_tags, .operations = tags.max_ops};
}

std::uint64_t TagQueue::WorkId::pack() const noexcept {
    return std::uint64_t{static_cast<std::uint8_t>(work)} << 56 |
           std::uint64_t{generation & generation_mask} << 32 | index;
}

TagQueue::WorkId TagQueue::WorkId::unpack(std::uint64_t id) noexcept {
    return {.work = static_cast<Work>(id >> 56),
            .generation = static_cast<std::uint32_t>(id >> 32) & generation_mask,
            .index = static_cast<std::uint32_t>(id)};
}

TagQueue::TagQueue(const TagQueueOptions& options, std::uint32_t capacity, TagQueueOwner& owner)
    : capacity_(capacity),
      receives_(options.receives),
      buffer_bytes_(buffer_bytes_for(options.content_bytes)),
      senders_max_(options.senders),
      owner_(owner),
      slots_(capacity),
      posted_(options.receives),
      outstanding_(2 * capacity + 1),
      arrivals_(capacity + options.receives) {
    senders_.reserve(senders_max_);
    for (std::uint32_t buffer = 0; buffer <= capacity; ++buffer) free_buffers_.push_back(buffer);
}

std::expected<std::unique_ptr<TagQueue>, std::error_code> TagQueue::create(
    ibv_pd* domain, ibv_comp_channel* channel, const TagQueueOptions& options,
    TagQueueOwner& owner) {
    const TagCapability device = tag_capability(domain->context);
    if (!device) return std::unexpected(from_errno(EOPNOTSUPP));
    const bool sound = options.tags != 0 && options.tags <= entries_max && options.receives != 0 &&
                       options.receives <= entries_max && options.senders != 0 &&
                       options.content_bytes != 0 && options.content_bytes <= content_bytes_max;
    if (!sound) return std::unexpected(from_errno(EINVAL));
    const std::uint32_t capacity =
        std::min({options.tags, device.tags, (device.operations - 1) / 2});
    std::unique_ptr<TagQueue> queue(new TagQueue(options, capacity, owner));
    if (const auto error = queue->open(domain, channel)) return std::unexpected(error);
    return queue;
}

std::error_code TagQueue::open(ibv_pd* domain, ibv_comp_channel* channel) {
    const std::size_t bytes = std::size_t{capacity_ + 1 + receives_} * buffer_bytes_;
    memory_ = std::make_unique<std::byte[]>(bytes);
    region_ = ibv_reg_mr(domain, memory_.get(), bytes, IBV_ACCESS_LOCAL_WRITE);
    if (region_ == nullptr) return from_errno(errno);

    ibv_cq_init_attr_ex completions{};
    // Each operation once, each tag by its match and by its content, each receive once.
    completions.cqe = static_cast<int>(2 * capacity_ + 1 + 2 * capacity_ + receives_);
    completions.channel = channel;
    completions.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_TM_INFO;
    completions_ = ibv_create_cq_ex(domain->context, &completions);
    if (completions_ == nullptr) return from_errno(errno);

    ibv_srq_init_attr_ex attributes{};
    attributes.attr = {.max_wr = receives_, .max_sge = 1, .srq_limit = 0};
    attributes.comp_mask =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    attributes.srq_type = IBV_SRQT_TM;
    attributes.pd = domain;
    attributes.cq = ibv_cq_ex_to_cq(completions_);
    attributes.tm_cap = {.max_num_tags = capacity_, .max_ops = 2 * capacity_ + 1};
    queue_ = ibv_create_srq_ex(domain->context, &attributes);
    if (queue_ == nullptr) return from_errno(errno);

    for (std::uint32_t receive = 0; receive < receives_; ++receive) {
        if (const auto error = post_receive(receive)) return error;
    }
    return {};
}

TagQueue::~TagQueue() {
    RTRS_ASSERT(!polling_);
    if (queue_ != nullptr) (void)ibv_destroy_srq(queue_);
    if (completions_ != nullptr) (void)ibv_destroy_cq(ibv_cq_ex_to_cq(completions_));
    if (region_ != nullptr) (void)ibv_dereg_mr(region_);
}

void TagQueue::add_sender(std::uint32_t queue_pair, std::uint32_t sender,
                          std::uint64_t last_number) {
    RTRS_ASSERT(senders_.size() < senders_max_ && find_sender(queue_pair) == nullptr);
    senders_.push_back({.queue_pair = queue_pair, .sender = sender, .number = last_number});
}

std::byte* TagQueue::tag_buffer(std::uint32_t buffer) const noexcept {
    return memory_.get() + std::size_t{buffer} * buffer_bytes_;
}

std::byte* TagQueue::receive_buffer(std::uint32_t receive) const noexcept {
    return tag_buffer(capacity_ + 1 + receive);
}

std::error_code TagQueue::post_receive(std::uint32_t receive) noexcept {
    ibv_sge buffer{.addr = reinterpret_cast<std::uint64_t>(receive_buffer(receive)),
                   .length = buffer_bytes_,
                   .lkey = region_->lkey};
    ibv_recv_wr work{};
    work.wr_id = WorkId{.work = Work::receive, .index = receive}.pack();
    work.sg_list = &buffer;
    work.num_sge = 1;
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_srq_recv(queue_, &work, &refused)) return from_errno(error);
    posted_[receive] = true;
    return {};
}

void TagQueue::prepare_add(const TagOperation& operation, ibv_ops_wr& work, ibv_sge& buffer) {
    Slot& slot = slots_[operation.slot];
    RTRS_ASSERT(slot.state == Slot::State::free && operation.receive.pattern.possible());
    const std::uint32_t generation = (slot.generation + 1) & generation_mask;
    slot = {.state = Slot::State::held, .generation = generation, .buffer = free_buffers_.back()};
    free_buffers_.pop_back();
    buffer = {.addr = reinterpret_cast<std::uint64_t>(tag_buffer(slot.buffer)),
              .length = buffer_bytes_,
              .lkey = region_->lkey};
    work.opcode = IBV_WR_TAG_ADD;
    work.tm.add.recv_wr_id =
        WorkId{.work = Work::tag, .generation = generation, .index = operation.slot}.pack();
    work.tm.add.sg_list = &buffer;
    work.tm.add.num_sge = 1;
    work.tm.add.tag = operation.receive.pattern.tag;
    work.tm.add.mask = operation.receive.pattern.mask;
}

void TagQueue::post(const TagOperation& operation) {
    if (broken_ != nullptr) return;
    RTRS_ASSERT(!outstanding_.full());
    RTRS_ASSERT(operation.kind == TagOperation::Kind::sync || operation.slot < capacity_);
    Outstanding posted{.operation = operation,
                       .id = WorkId{.work = Work::operation, .index = operations_++}.pack()};
    ibv_sge buffer{};
    ibv_ops_wr work{};
    work.wr_id = posted.id;
    work.opcode = IBV_WR_TAG_SYNC;
    work.flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
    work.tm.unexpected_cnt = operation.handled;
    if (operation.kind == TagOperation::Kind::add) {
        prepare_add(operation, work, buffer);
    } else if (operation.kind == TagOperation::Kind::remove) {
        const Slot& slot = slots_[operation.slot];
        posted.too_late = slot.state != Slot::State::held;
        if (!posted.too_late) {
            work.opcode = IBV_WR_TAG_DEL;
            work.tm.handle = slot.handle;
        }
    }
    ibv_ops_wr* refused = nullptr;
    if (ibv_post_srq_ops(queue_, &work, &refused) != 0) {
        // Events come in a turn of their own.
        broken_ = "the device refused an operation on its tags";
        return;
    }
    if (operation.kind == TagOperation::Kind::add) slots_[operation.slot].handle = work.tm.handle;
    outstanding_.push(posted);
}

bool TagQueue::poll() {
    RTRS_ASSERT(!polling_ && handler_ != nullptr);
    if (broken_ != nullptr) {
        if (std::exchange(told_, true)) return false;
        owner_.on_tag_queue_broken(broken_);
        return true;
    }
    std::array<Completion, completions_per_turn> batch;
    std::size_t count = 0;
    ibv_poll_cq_attr attributes{};
    const int error = ibv_start_poll(completions_, &attributes);
    if (error == ENOENT) return false;
    if (error != 0) {
        fail("the completion queue cannot be read");
        return true;
    }
    int more = 0;
    while (more == 0) {
        batch[count++] = read();
        if (count == batch.size()) break;
        more = ibv_next_poll(completions_);
    }
    ibv_end_poll(completions_);

    polling_ = true;
    for (std::size_t i = 0; i < count && broken_ == nullptr; ++i) {
        handle(batch[i]);
        report();
    }
    polling_ = false;
    if (more != 0 && more != ENOENT) fail("the completion queue cannot be read");
    return true;
}

std::error_code TagQueue::arm() noexcept {
    return from_errno(ibv_req_notify_cq(completion_queue(), 0));
}

// Only what is valid with this status may be read.
TagQueue::Completion TagQueue::read() noexcept {
    Completion completion{.id = completions_->wr_id, .status = completions_->status};
    const bool incomplete = completion.status == IBV_WC_TM_RNDV_INCOMPLETE;
    if (completion.status != IBV_WC_SUCCESS && !incomplete) return completion;
    completion.opcode = ibv_wc_read_opcode(completions_);
    completion.flags = ibv_wc_read_wc_flags(completions_);
    if (WorkId::unpack(completion.id).work == Work::operation) return completion;
    completion.bytes = ibv_wc_read_byte_len(completions_);
    completion.queue_pair = ibv_wc_read_qp_num(completions_);
    if (completion.has(IBV_WC_TM_MATCH)) ibv_wc_read_tm_info(completions_, &completion.tag);
    return completion;
}

void TagQueue::handle(const Completion& completion) {
    const WorkId id = WorkId::unpack(completion.id);
    switch (id.work) {
        case Work::operation:
            return operation_completed(completion);
        case Work::tag:
            return tag_completed(completion, id);
        case Work::receive:
            return receive_completed(completion, id);
    }
    fail("a completion names no work of ours");
}

void TagQueue::operation_completed(const Completion& completion) {
    if (outstanding_.empty() || outstanding_.front().id != completion.id) {
        return fail("an operation was reported that is not the oldest");
    }
    const Outstanding posted = outstanding_.pop();
    const TagOperation& operation = posted.operation;
    const bool removal = operation.kind == TagOperation::Kind::remove && !posted.too_late;
    const bool done = completion.status == IBV_WC_SUCCESS;
    if (!done && !(removal && completion.status == IBV_WC_TM_ERR)) {
        return fail("an operation on the device's tags failed");
    }
    const ibv_wc_opcode expected = operation.kind == TagOperation::Kind::add ? IBV_WC_TM_ADD
                                   : removal                                 ? IBV_WC_TM_DEL
                                                                             : IBV_WC_TM_SYNC;
    if (done && completion.opcode != expected) return fail("another operation was reported");
    if (removal && !removal_completed(operation, done)) return;
    handler_->on_device_operation({.kind = operation.kind,
                                   .slot = operation.slot,
                                   .handled = operation.handled,
                                   .done = done && !posted.too_late,
                                   .sync_required = operation.kind != TagOperation::Kind::remove &&
                                                    completion.has(IBV_WC_TM_SYNC_REQ)});
}

bool TagQueue::removal_completed(const TagOperation& operation, bool done) {
    if (!done) return true;
    Slot& slot = slots_[operation.slot];
    if (slot.state != Slot::State::held) {
        fail("a tag was both matched and removed");
        return false;
    }
    slot.state = Slot::State::free;
    free_buffers_.push_back(slot.buffer);
    return true;
}

void TagQueue::tag_completed(const Completion& completion, const WorkId& id) {
    if (completion.status != IBV_WC_SUCCESS && completion.status != IBV_WC_TM_RNDV_INCOMPLETE) {
        return fail("a receive with a tag failed");
    }
    if (id.index >= capacity_) return fail("a tag was matched that is none");
    Slot& slot = slots_[id.index];
    const bool current = slot.generation == id.generation &&
                         (slot.state == Slot::State::held || slot.state == Slot::State::matched);
    if (!current) return fail("a tag was matched that the device does not hold");
    if (completion.opcode != IBV_WC_TM_RECV) return fail("a tag was matched by something else");
    if (completion.status == IBV_WC_TM_RNDV_INCOMPLETE) slot.announced = true;
    if (slot.state == Slot::State::held) {
        if (!match(slot, id.index, completion)) return;
    } else if (completion.has(IBV_WC_TM_MATCH) && !slot.announced) {
        return fail("a tag was matched twice");
    }
    if (!completion.has(IBV_WC_TM_DATA_VALID)) return;
    if (completion.bytes > buffer_bytes_) return fail("a content is longer than its buffer");
    slot.state = Slot::State::whole;
    slot.bytes = completion.bytes;
    slot.message.bytes = completion.bytes;
    slot.message.stored_bytes = completion.bytes;
    if (slot.announced && !announce(slot)) fail("an announcement is not that of its match");
}

bool TagQueue::match(Slot& slot, std::uint32_t index, const Completion& completion) {
    Sender* sender = find_sender(completion.queue_pair);
    if (sender == nullptr || !completion.has(IBV_WC_TM_MATCH)) {
        fail(sender == nullptr ? "a message of nobody was matched" : "a content has no match");
        return false;
    }
    slot.state = Slot::State::matched;
    slot.number = completion.tag.priv;
    slot.message = {.sender = sender->sender, .tag = completion.tag.tag};
    arrivals_.push({.kind = Arrival::Kind::match,
                    .index = index,
                    .sender = static_cast<std::uint32_t>(sender - senders_.data())});
    return true;
}

// The buffer has the headers of a rendezvous instead of its content.
bool TagQueue::announce(Slot& slot) {
    const Bytes bytes = Bytes(tag_buffer(slot.buffer), slot.bytes);
    const auto header = TagHeader::parse(bytes);
    if (!header || header->operation != TagHeaderOperation::rendezvous) return false;
    const bool the_same = header->tag == slot.message.tag && header->user_data == slot.number;
    const auto from = RendezvousHeader::parse(bytes.subspan(TagHeader::wire_bytes));
    if (!the_same || !from) return false;
    slot.message.bytes = from->bytes;
    slot.message.stored_bytes = 0;
    return true;
}

void TagQueue::receive_completed(const Completion& completion, const WorkId& id) {
    if (completion.status != IBV_WC_SUCCESS) return fail("a receive failed");
    if (id.index >= receives_ || !posted_[id.index]) {
        return fail("a receive was filled that is not posted");
    }
    posted_[id.index] = false;
    const bool untagged = completion.opcode == IBV_WC_TM_NO_TAG;
    const bool unexpected = completion.opcode == IBV_WC_RECV || completion.opcode == IBV_WC_TM_RECV;
    if ((!untagged && !unexpected) || completion.has(IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID)) {
        return fail("a receive was filled by something else");
    }
    if (completion.bytes > buffer_bytes_) return fail("a message is longer than its buffer");
    const Sender* sender = find_sender(completion.queue_pair);
    if (sender == nullptr) return fail("a message of nobody arrived");
    arrivals_.push({.kind = untagged ? Arrival::Kind::untagged : Arrival::Kind::unexpected,
                    .index = id.index,
                    .bytes = completion.bytes,
                    .sender = static_cast<std::uint32_t>(sender - senders_.data())});
}

void TagQueue::report() {
    while (broken_ == nullptr && !arrivals_.empty()) {
        if (arrivals_.front().kind == Arrival::Kind::match) {
            if (slots_[arrivals_.front().index].state != Slot::State::whole) return;
            report_match(arrivals_.pop());
            continue;
        }
        const Arrival arrival = arrivals_.pop();
        if (arrival.kind == Arrival::Kind::untagged) {
            owner_.on_untagged(senders_[arrival.sender].sender,
                               Bytes(receive_buffer(arrival.index), arrival.bytes));
        } else {
            report_unexpected(arrival);
        }
        if (broken_ == nullptr && post_receive(arrival.index)) {
            fail("the device refused a receive");
        }
    }
}

void TagQueue::report_match(const Arrival& arrival) {
    Slot& slot = slots_[arrival.index];
    TagMessage message = slot.message;
    message.number = number(senders_[arrival.sender], slot.number);
    const std::uint32_t buffer = slot.buffer;
    const Bytes bytes(tag_buffer(buffer), slot.bytes);
    content_ = {.bytes = bytes};
    if (slot.announced) {
        content_ = {.announced = true,
                    .from = *RendezvousHeader::parse(bytes.subspan(TagHeader::wire_bytes))};
    }
    // The slot may be used again from inside the event, the buffer may not.
    slot.state = Slot::State::free;
    handler_->on_device_match(arrival.index, message);
    content_ = {};
    free_buffers_.push_back(buffer);
}

void TagQueue::report_unexpected(const Arrival& arrival) {
    const Bytes bytes(receive_buffer(arrival.index), arrival.bytes);
    const auto header = TagHeader::parse(bytes);
    if (!header) return fail("a message has no valid header");
    Sender& sender = senders_[arrival.sender];
    TagMessage message{
        .sender = sender.sender, .number = number(sender, header->user_data), .tag = header->tag};
    const Bytes behind = bytes.subspan(TagHeader::wire_bytes);
    if (header->operation == TagHeaderOperation::rendezvous) {
        const auto from = RendezvousHeader::parse(behind);
        if (!from) return fail("a rendezvous has no valid header");
        content_ = {.announced = true, .from = *from};
        message.bytes = from->bytes;
    } else if (header->operation == TagHeaderOperation::eager) {
        content_ = {.bytes = behind};
        message.bytes = behind.size();
        message.stored_bytes = behind.size();
    } else {
        return fail("a message without a tag was counted");
    }
    handler_->on_device_unexpected(message);
    content_ = {};
}

TagQueue::Sender* TagQueue::find_sender(std::uint32_t queue_pair) noexcept {
    const auto found = std::ranges::find(senders_, queue_pair, &Sender::queue_pair);
    return found == senders_.end() ? nullptr : &*found;
}

// The header has 32 bits of it: the number that is closest to the last. If it is not the next, that
// is for whoever matches to refuse.
std::uint64_t TagQueue::number(Sender& sender, std::uint32_t low_bits) noexcept {
    const auto last = static_cast<std::uint32_t>(sender.number);
    const std::int64_t step = static_cast<std::int32_t>(low_bits - last);
    if (step < 0 && static_cast<std::uint64_t>(-step) > sender.number) return 0;
    const std::uint64_t number = sender.number + static_cast<std::uint64_t>(step);
    if (step > 0) sender.number = number;
    return number;
}

void TagQueue::fail(const char* what) {
    if (broken_ != nullptr) return;
    broken_ = what;
    told_ = true;
    owner_.on_tag_queue_broken(what);
}

}  // namespace rtrs::verbs
