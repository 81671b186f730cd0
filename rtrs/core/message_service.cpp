#include "rtrs/core/message_service.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/member_call.h"

namespace rtrs {
namespace {

// Delay before memory that could not be allocated or registered is tried again.
constexpr Duration memory_retry = std::chrono::milliseconds(10);

TagLimits limits_of(const MessageOptions& options) {
    return {.senders = 1,
            .receives = options.receives_max,
            .unexpected_messages = options.window,
            .unexpected_bytes = std::uint64_t{options.window} * options.eager_bytes};
}

}  // namespace

MessageBuffer MessageBuffer::copy_of(Bytes content) {
    MessageBuffer buffer(content.size());
    if (buffer.size() == content.size()) std::ranges::copy(content, buffer.bytes().begin());
    return buffer;
}

MessageCore::MessageCore(Clock& clock, const MessageOptions& options, std::uint64_t life,
                         MessageCoreOwner& owner)
    : clock_(clock),
      options_(options),
      life_(life),
      owner_(owner),
      pump_timer_(clock, this, member_call<&MessageCore::pump>),
      silence_timer_(clock, this,
                     [](void* self) {
                         auto& core = *static_cast<MessageCore*>(self);
                         if (core.sender_ != nullptr) {
                             core.sender_->fail(Error::timed_out,
                                                "the peer does not say that messages arrived");
                         }
                     }),
      matcher_(std::make_unique<OffloadMatcher>(limits_of(options_), nullptr, *this)) {}

MessageCore::~MessageCore() { RTRS_ASSERT(all_links_.empty()); }

std::error_code MessageCore::check(const MessageOptions& options) noexcept {
    const bool possible = options.window >= 1 && options.window <= TagHello::window_max &&
                          options.eager_bytes >= TagHello::eager_bytes_min &&
                          options.eager_bytes <= TagHello::eager_bytes_max &&
                          options.longest_bytes >= options.eager_bytes &&
                          options.longest_bytes <= TagHello::longest_bytes_max &&
                          options.receives_max >= 1 && options.sends_max >= 1 &&
                          options.silence_max > Duration::zero();
    return possible ? std::error_code{} : from_errno(EINVAL);
}

// --- The public face.

std::error_code MessageCore::send(Tag tag, MessageBuffer content, Sent sent, void* context) {
    if (closed_) return from_errno(ENOTCONN);
    if (outgoing_.size() >= options_.sends_max) return from_errno(ENOBUFS);
    if (content.size() > options_.longest_bytes) return from_errno(EMSGSIZE);
    outgoing_.push_back(
        {.tag = tag, .content = std::move(content), .sent = sent, .context = context});
    pump_soon();
    return {};
}

std::expected<ReceiveId, std::error_code> MessageCore::receive(TagPattern pattern,
                                                               std::uint64_t capacity_bytes,
                                                               Received received, void* context) {
    if (closed_) return std::unexpected(from_errno(ENOTCONN));
    const std::uint64_t key = ++last_context_;
    posted_[key] = {received, context};
    const auto id =
        matcher_->post({.pattern = pattern, .capacity_bytes = capacity_bytes, .context = key});
    if (!id) {
        posted_.erase(key);
        return std::unexpected(id.error());
    }
    if (posted_.contains(key)) matcher_ids_[key] = *id;
    return ReceiveId{key};
}

bool MessageCore::cancel(ReceiveId id) {
    const auto found = matcher_ids_.find(static_cast<std::uint64_t>(id));
    if (found == matcher_ids_.end()) return false;
    const CancelResult result = matcher_->cancel(found->second);
    RTRS_ASSERT(result == CancelResult::cancelled);  // there is no device that could have it
    posted_.erase(found->first);
    matcher_ids_.erase(found);
    return true;
}

MessageStatus MessageCore::status() const {
    MessageStatus status{.up = !links_.empty(),
                         .posted = matcher_->lists().posted(),
                         .unexpected = matcher_->lists().unexpected(),
                         .unexpected_bytes = matcher_->lists().unexpected_bytes(),
                         .sending = static_cast<std::uint32_t>(outgoing_.size()),
                         .sent = sent_,
                         .received = received_,
                         .rendezvous = rendezvous_};
    for (const MessageLink* link : all_links_) status.registrations += link->registrations();
    return status;
}

void MessageCore::close() {
    RTRS_ASSERT(all_links_.empty());
    if (closed_) return;
    closed_ = true;
    pump_timer_.disarm();
    silence_timer_.disarm();
    fail_everything(Error::closed);
}

// --- Links come and go.

void MessageCore::link_established(MessageLink& link) {
    all_links_.push_back(&link);
    std::array<std::byte, TagHello::wire_bytes> body;
    TagHello{.window = options_.window,
             .eager_bytes = options_.eager_bytes,
             .longest_bytes = options_.longest_bytes,
             .life = life_,
             .known = peer_life_,
             .progress = ours_}
        .emit(body);
    link.send({.user_data = static_cast<std::uint32_t>(TagNotice::hello)}, body, {});
}

void MessageCore::link_lost(MessageLink& link) {
    std::erase(links_, &link);
    std::erase_if(finishes_, [&](const Finish& finish) { return finish.link == &link; });
    for (auto& [number, incoming] : incoming_) {
        std::erase_if(incoming.offers, [&](const Offer& offer) { return offer.link == &link; });
        incoming.no_memory_since.reset();  // another link may use another device
    }
    if (sender_ == &link) {
        sender_ = nullptr;
        no_memory_since_.reset();
        silence_timer_.disarm();
    }
    pump_soon();
}

void MessageCore::link_gone(MessageLink& link) { std::erase(all_links_, &link); }

void MessageCore::message_arrived(MessageLink& link, Bytes message) {
    const auto header = TagHeader::parse(message);
    if (!header) return link.fail(text(header.error()));
    const Bytes body = message.subspan(TagHeader::wire_bytes);
    const bool notice = header->operation == TagHeaderOperation::no_tag;
    if (notice && header->user_data == static_cast<std::uint32_t>(TagNotice::hello)) {
        return hello(link, body);
    }
    if (!link.up()) return link.fail("the first message is not a hello");
    switch (header->operation) {
        case TagHeaderOperation::no_tag: {
            if (header->user_data != static_cast<std::uint32_t>(TagNotice::progress)) {
                return link.fail("an unknown notice");
            }
            const auto progress = TagProgress::parse(body);
            if (!progress) return link.fail(text(progress.error()));
            return apply(*progress, link);
        }
        case TagHeaderOperation::finished:
            return finished(link, *header);
        case TagHeaderOperation::rendezvous:
        case TagHeaderOperation::eager:
            return data(link, *header, body);
    }
}

void MessageCore::hello(MessageLink& link, Bytes body) {
    if (link.up()) return link.fail("a second hello");
    const auto hello = TagHello::parse(body);
    if (!hello) return link.fail(text(hello.error()));
    const bool anew = peer_life_ != 0 && hello->life != peer_life_;
    if (anew) {
        // What the other links carry belongs to the peer's former life.
        const std::vector<MessageLink*> old = links_;
        for (MessageLink* other : old) other->fail(Error::path_lost, "the other end was made anew");
    }
    peer_ = *hello;
    link.greeted();
    links_.push_back(&link);
    if (anew) reset();
    peer_life_ = hello->life;
    if (hello->known == life_) apply(hello->progress, link);
    pump_soon();
    if (anew) owner_.messages_reset();
}

void MessageCore::reset() {
    last_number_ = 0;
    theirs_ = {};
    ours_ = {};
    sender_ = nullptr;
    next_ = 0;
    no_memory_since_.reset();
    finishes_.clear();
    // Links that still read it are lost already.
    for (Outgoing& outgoing : outgoing_) static_cast<void>(conceal(outgoing));
    fail_everything(Error::path_lost);
}

// The callbacks may post and send again, which belongs to the time after the failure.
void MessageCore::fail_everything(std::error_code error) {
    const auto outgoing = std::exchange(outgoing_, {});
    const auto posted = std::exchange(posted_, {});
    const auto incoming = std::exchange(incoming_, {});
    matcher_ids_.clear();
    deliveries_.clear();
    matcher_ = std::make_unique<OffloadMatcher>(limits_of(options_), nullptr, *this);
    next_ = 0;
    for (const auto& [number, one] : incoming) {
        if (one.matched)
            one.receiver.received(one.receiver.context, {.tag = one.tag, .error = error});
    }
    for (const auto& [context, one] : posted) one.received(one.context, {.error = error});
    for (const Outgoing& one : outgoing) {
        if (one.sent != nullptr) one.sent(one.context, error);
    }
}

// --- What both directions need.

std::uint64_t MessageCore::whole_number(std::uint32_t low, std::uint64_t newest) noexcept {
    return newest + static_cast<std::uint64_t>(std::int64_t{
                        static_cast<std::int32_t>(low - static_cast<std::uint32_t>(newest))});
}

void MessageCore::pump() {
    deliver();
    // A copy, because a read that cannot be posted may lose its link.
    const std::vector<std::uint64_t> matched(deliveries_.begin(), deliveries_.end());
    for (const std::uint64_t number : matched) {
        const auto found = incoming_.find(number);
        if (found == incoming_.end()) continue;
        Incoming& incoming = found->second;
        if (incoming.state == Incoming::State::waiting && !incoming.offers.empty()) {
            start_read(number, incoming);
        }
    }
    send_finishes();
    if (sender_ == nullptr) {
        if (links_.empty()) return;
        sender_ = links_.front();
        next_ = 0;
        progress_due_ = true;
    }
    if (progress_due_) send_progress(*sender_);
    send_data(*sender_);
    watch_for_silence();
}

void MessageCore::try_again_soon() { pump_timer_.arm(clock_.now() + memory_retry); }

bool MessageCore::tried_long_enough(std::optional<Instant>& no_memory_since) {
    try_again_soon();
    const Instant now = clock_.now();
    if (!no_memory_since) no_memory_since = now;
    return now - *no_memory_since >= options_.silence_max;
}

}  // namespace rtrs
