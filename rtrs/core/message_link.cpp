#include "rtrs/core/message_link.h"

#include <algorithm>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/core/message_service.h"
#include "rtrs/core/send_signals.h"
#include "rtrs/wire/connect.h"

namespace rtrs {
namespace {

constexpr std::uint32_t sends = 32;
// Contexts: sends count from 0, receives and reads have a bit of their own.
constexpr std::uint64_t read_bit = 1ull << 62;
constexpr std::uint64_t receive_bit = 1ull << 63;

}  // namespace

MessageLink::MessageLink(MessageCore& core, MessageLinkOwner& owner, Fabric& fabric,
                         const Carried& carried)
    : core_(core),
      owner_(owner),
      fabric_(fabric),
      carried_(carried),
      slot_bytes_(TagHeader::wire_bytes +
                  std::max<std::size_t>(core.options().eager_bytes, TagHello::wire_bytes)),
      // Room for a window of messages, as many finishes, and two notices for each message of the
      // other direction.
      receives_(4 * core.options().window + 8),
      last_read_(read_bit),
      hello_timer_(core.clock(), this, [](void* self) {
          static_cast<MessageLink*>(self)->fail(Error::timed_out, "no hello");
      }) {}

MessageLink::~MessageLink() { RTRS_ASSERT(drained()); }

std::error_code MessageLink::prepare() {
    memory_ = LazyMemory((receives_ + sends) * slot_bytes_);
    if (!memory_) return from_errno(ENOMEM);
    auto domain = fabric_.create_domain();
    if (!domain) return domain.error();
    domain_ = std::move(*domain);
    auto region = domain_->register_memory(memory_.bytes(), Access::local);
    if (!region) return region.error();
    region_ = std::move(*region);
    for (std::uint32_t slot = 0; slot < sends; ++slot) free_sends_.push_back(slot);
    return {};
}

EndpointOptions MessageLink::endpoint_options() const noexcept {
    return {.send_queue_depth = sends + core_.options().window + SendSignals::slots_held_max,
            .receive_queue_depth = receives_,
            .worker = carried_.worker,
            .silence_max = carried_.silence_max,
            .packets = carried_.packets};
}

std::error_code MessageLink::dial(const std::string& source, const std::string& destination,
                                  Bytes private_data) {
    if (const auto error = prepare()) return error;
    auto endpoint =
        fabric_.connect(*domain_, source, destination, private_data, endpoint_options(), *this);
    if (!endpoint) return endpoint.error();
    endpoint_ = std::move(*endpoint);
    return post_receives();
}

std::error_code MessageLink::accept(ConnectRequest& request, Bytes private_data) {
    if (const auto error = prepare()) return error;
    auto endpoint = request.accept(*domain_, private_data, endpoint_options(), *this);
    if (!endpoint) return endpoint.error();
    endpoint_ = std::move(*endpoint);
    return post_receives();
}

void MessageLink::greeted() noexcept {
    state_ = State::up;
    hello_timer_.disarm();
}

Segment MessageLink::receive_buffer(std::uint64_t slot) const noexcept {
    return {memory_.data() + slot * slot_bytes_, static_cast<std::uint32_t>(slot_bytes_)};
}

std::error_code MessageLink::post_receives() {
    for (std::uint64_t slot = 0; slot < receives_; ++slot) {
        const auto error = endpoint_->post_receive(receive_bit | slot, receive_buffer(slot));
        if (error) return error;
    }
    return {};
}

bool MessageLink::lose() {
    if (state_ == State::lost) return false;
    state_ = State::lost;
    hello_timer_.disarm();
    core_.link_lost(*this);
    if (endpoint_) endpoint_->disconnect();
    return true;
}

void MessageLink::disconnect() { lose(); }

void MessageLink::fail(std::error_code reason, std::string_view why) {
    end(reason, "messages: " + std::string(why));
}

void MessageLink::end(std::error_code reason, std::string_view why) {
    const auto was_up =
        state_ == State::up ? MessageLinkOwner::WasUp::yes : MessageLinkOwner::WasUp::no;
    if (lose()) owner_.message_link_lost(*this, was_up, reason, why);
}

void MessageLink::on_established(Bytes) {
    if (state_ != State::dialling) return;
    state_ = State::waiting;
    hello_timer_.arm(core_.clock().now() + core_.options().silence_max);
    core_.link_established(*this);
}

void MessageLink::on_rejected(Bytes) { fail(Error::rejected, "cannot connect"); }

// Without a reason this side ended it, because it could not send.
void MessageLink::on_disconnected(std::error_code reason) {
    end(reason ? reason : make_error_code(Error::path_lost), "connection lost");
}

void MessageLink::on_drained() {
    endpoint_.reset();
    exposed_.clear();
    kept_.clear();
    RTRS_ASSERT(reads_.empty());
    core_.link_gone(*this);
    owner_.message_link_drained(*this);
}

void MessageLink::on_completion(const Completion& completion) {
    if (completion.opcode == CompletionOpcode::send) return send_ended(completion);
    if (completion.status != CompletionStatus::success) {
        if (completion.status != CompletionStatus::flushed)
            fail(Error::path_lost, "a receive failed");
        return;
    }
    if (completion.opcode != CompletionOpcode::receive) return fail("a message with an immediate");
    received(completion);
}

void MessageLink::send_ended(const Completion& completion) {
    const bool done = completion.status == CompletionStatus::success;
    if ((completion.context & read_bit) == 0) {
        free_sends_.push_back(static_cast<std::uint32_t>(completion.context));
        core_.send_buffer_free();
    } else {
        auto ended = reads_.extract(completion.context);
        RTRS_ASSERT(!ended.empty());
        core_.read_ended(*this, std::move(ended.mapped()), done);
    }
    if (!done && completion.status != CompletionStatus::flushed)
        fail(Error::path_lost, "work failed");
}

void MessageLink::received(const Completion& completion) {
    if (lost()) return;
    const std::uint64_t slot = completion.context & ~receive_bit;
    const Segment buffer = receive_buffer(slot);
    core_.message_arrived(*this, {buffer.data, completion.bytes});
    if (lost()) return;
    if (const auto error = endpoint_->post_receive(completion.context, buffer)) {
        fail(error, "cannot post a receive");
    }
}

void MessageLink::send(const TagHeader& header, Bytes body, Bytes content) {
    RTRS_ASSERT(can_send());
    const std::uint32_t slot = free_sends_.back();
    free_sends_.pop_back();
    std::byte* to = memory_.data() + (receives_ + slot) * slot_bytes_;
    const std::size_t bytes = TagHeader::wire_bytes + body.size() + content.size();
    RTRS_ASSERT(bytes <= slot_bytes_);
    header.emit({to, TagHeader::wire_bytes});
    std::ranges::copy(body, to + TagHeader::wire_bytes);
    std::ranges::copy(content, to + TagHeader::wire_bytes + body.size());
    const Segment segment{to, static_cast<std::uint32_t>(bytes)};
    const WorkRequest work{.opcode = WorkOpcode::send,
                           .signal = Signal::completion,
                           .context = slot,
                           .local = {&segment, 1}};
    if (endpoint_->post({&work, 1})) {
        // The loss is reported in a coming turn; whoever keeps the message sends it again.
        free_sends_.push_back(slot);
        endpoint_->disconnect();
    }
}

std::expected<RemoteBuffer, std::error_code> MessageLink::expose(std::uint64_t number,
                                                                 MutableBytes memory) {
    auto region = domain_->register_memory(memory, Access::local | Access::remote_read);
    if (!region) return std::unexpected(region.error());
    const RemoteBuffer remote = (*region)->remote(0, static_cast<std::uint32_t>(memory.size()));
    exposed_[number] = std::move(*region);
    return remote;
}

bool MessageLink::conceal(std::uint64_t number) {
    const auto found = exposed_.find(number);
    if (found == exposed_.end()) return true;
    if (found->second->being_read()) return false;
    exposed_.erase(found);
    return true;
}

std::error_code MessageLink::read(MessageRead read, const RemoteBuffer& from) {
    auto region = domain_->register_memory(read.into.bytes(), Access::local);
    if (!region) return region.error();
    read.region = std::move(*region);
    const Segment segment{read.into.bytes().data(), from.bytes};
    const WorkRequest work{.opcode = WorkOpcode::read,
                           .signal = Signal::completion,
                           .context = ++last_read_,
                           .local = {&segment, 1},
                           .remote = from};
    if (const auto error = endpoint_->post({&work, 1})) return error;
    reads_.emplace(last_read_, std::move(read));
    return {};
}

}  // namespace rtrs
