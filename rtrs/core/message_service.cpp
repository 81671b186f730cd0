#include "rtrs/core/message_service.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rtrs {
namespace {

// Before memory is asked for again that could not be had.
constexpr Duration memory_retry = std::chrono::milliseconds(10);

TagLimits limits_of(const MessageOptions& options) {
    return {.senders = 1,
            .receives = options.receives_max,
            .unexpected_messages = options.window,
            .unexpected_bytes = std::uint64_t{options.window} * options.eager_bytes};
}

// The number whose low bits came, nearest to the newest one.
std::uint64_t whole_number(std::uint32_t low, std::uint64_t newest) {
    return newest + static_cast<std::uint64_t>(std::int64_t{
                        static_cast<std::int32_t>(low - static_cast<std::uint32_t>(newest))});
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
      pump_timer_(clock, this, [](void* self) { static_cast<MessageCore*>(self)->pump(); }),
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
    if (posted_.contains(key)) contexts_[*id] = key;
    return *id;
}

bool MessageCore::cancel(ReceiveId id) {
    if (matcher_->cancel(id) != CancelResult::cancelled) return false;
    const auto context = contexts_.extract(id);
    RTRS_ASSERT(!context.empty());
    posted_.erase(context.mapped());
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
        incoming.no_memory_since.reset();  // another link may be of another device
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
        // What the others carry belongs to the former life.
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
    // What still reads is lost already.
    for (Outgoing& outgoing : outgoing_) static_cast<void>(conceal(outgoing));
    fail_everything(Error::path_lost);
}

// The callbacks may post and send again: that belongs to what comes.
void MessageCore::fail_everything(std::error_code error) {
    const auto outgoing = std::exchange(outgoing_, {});
    const auto posted = std::exchange(posted_, {});
    const auto incoming = std::exchange(incoming_, {});
    contexts_.clear();
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

// --- What the peer says of our messages.

void MessageCore::apply(const TagProgress& progress, MessageLink& link) {
    if (progress.received > last_number_) return link.fail("progress of what was never sent");
    const bool news = progress.received > theirs_.received;
    // Notices of several links may overtake each other.
    theirs_.received = std::max(theirs_.received, progress.received);
    theirs_.freed = std::max(theirs_.freed, progress.freed);
    if (news) silence_timer_.disarm();
    std::vector<std::pair<Sent, void*>> done;
    for (std::size_t i = 0; i < outgoing_.size() && outgoing_[i].number != 0 &&
                            outgoing_[i].number <= theirs_.received;) {
        if (outgoing_[i].rendezvous) {
            ++i;
            continue;
        }
        done.emplace_back(outgoing_[i].sent, outgoing_[i].context);
        outgoing_.erase(outgoing_.begin() + static_cast<std::ptrdiff_t>(i));
        if (next_ > i) --next_;
    }
    sent_ += done.size();
    watch_for_silence();
    pump_soon();
    for (const auto& [sent, context] : done) {
        if (sent != nullptr) sent(context, {});
    }
}

void MessageCore::finished(MessageLink& link, const TagHeader& header) {
    const std::uint64_t number = whole_number(header.user_data, last_number_);
    if (number == 0 || number > last_number_) return link.fail("what was never sent is finished");
    const auto found = std::ranges::find(outgoing_, number, &Outgoing::number);
    if (found == outgoing_.end()) return;  // said before, on another link
    if (!found->rendezvous || found->tag != header.tag) {
        return link.fail("an eager message is finished, or one of another tag");
    }
    end_send(found, {});
}

void MessageCore::end_send(std::deque<Outgoing>::iterator outgoing, std::error_code error) {
    const std::vector<MessageLink*> readers = conceal(*outgoing);
    const auto index = static_cast<std::size_t>(outgoing - outgoing_.begin());
    const Outgoing ended = std::move(*outgoing);
    outgoing_.erase(outgoing);
    if (next_ > index) --next_;
    if (!error) ++sent_;
    // A peer that has finished with a message has not got all of it yet.
    for (MessageLink* link : readers) link->fail("a message was finished that is being read");
    if (ended.sent != nullptr) ended.sent(ended.context, error);
}

std::vector<MessageLink*> MessageCore::conceal(Outgoing& outgoing) {
    std::vector<MessageLink*> readers;
    for (MessageLink* link : all_links_) {
        if (!link->conceal(outgoing.number)) readers.push_back(link);
    }
    if (readers.empty()) return readers;
    const auto kept = std::make_shared<const MessageBuffer>(std::move(outgoing.content));
    for (MessageLink* link : readers) link->keep(kept);
    return readers;
}

// --- What the peer sends.

void MessageCore::data(MessageLink& link, const TagHeader& header, Bytes body) {
    const std::uint64_t number = whole_number(header.user_data, ours_.received);
    if (number == 0 || number > ours_.received + 1) return link.fail("a message is missing");
    if (header.operation == TagHeaderOperation::rendezvous) {
        const auto rendezvous = RendezvousHeader::parse(body);
        if (!rendezvous) return link.fail(text(rendezvous.error()));
        if (rendezvous->bytes == 0 || rendezvous->bytes > options_.longest_bytes) {
            return link.fail("the length of a rendezvous is 0 or above our limit");
        }
    }
    if (number <= ours_.received) return announced_again(number, link, header, body);
    if (ours_.received - ours_.freed >= options_.window) {
        return link.fail("more messages than the window allows");
    }
    accept(number, link, header, body);
    deliver();
    pump_soon();
}

void MessageCore::accept(std::uint64_t number, MessageLink& link, const TagHeader& header,
                         Bytes body) {
    Incoming incoming{.tag = header.tag};
    TagMessage message{.number = number, .tag = header.tag, .context = number};
    if (header.operation == TagHeaderOperation::rendezvous) {
        const auto rendezvous = *RendezvousHeader::parse(body);
        incoming.rendezvous = true;
        incoming.offers = {{&link, {rendezvous.address, rendezvous.key, rendezvous.bytes}}};
        message.bytes = rendezvous.bytes;
    } else {
        incoming.eager.assign(body.begin(), body.end());
        message.bytes = body.size();
        message.stored_bytes = body.size();
    }
    incoming.bytes = message.bytes;
    incoming_.emplace(number, std::move(incoming));
    ++ours_.received;
    progress_due_ = true;
    const TagArrival arrival = matcher_->arrive(message);
    RTRS_ASSERT(arrival == TagArrival::matched || arrival == TagArrival::unexpected);
}

void MessageCore::announced_again(std::uint64_t number, MessageLink& link, const TagHeader& header,
                                  Bytes body) {
    progress_due_ = true;  // its sender has not heard of it
    pump_soon();
    if (header.operation != TagHeaderOperation::rendezvous) return;
    const auto found = incoming_.find(number);
    if (found != incoming_.end()) {
        if (!found->second.rendezvous || found->second.tag != header.tag) {
            return link.fail("a message has changed");
        }
        const auto rendezvous = *RendezvousHeader::parse(body);
        if (rendezvous.bytes != found->second.bytes) return link.fail("a message has changed");
        auto& offers = found->second.offers;
        std::erase_if(offers, [&](const Offer& offer) { return offer.link == &link; });
        offers.push_back({&link, {rendezvous.address, rendezvous.key, rendezvous.bytes}});
        return;
    }
    const auto waiting = std::ranges::count(finishes_, &link, &Finish::link);
    if (waiting >= 2 * std::int64_t{options_.window}) return link.fail("the same again and again");
    finishes_.push_back({&link, number, header.tag});
}

void MessageCore::on_match(const TagMatch& match) {
    Incoming& incoming = incoming_.at(match.message.number);
    const auto posted = posted_.extract(match.receive.context);
    RTRS_ASSERT(!posted.empty());
    contexts_.erase(match.id);
    incoming.matched = true;
    incoming.receiver = posted.mapped();
    if (match.truncated()) {
        incoming.error = from_errno(EMSGSIZE);
        incoming.eager.clear();
    }
    if (!incoming.rendezvous || incoming.error) incoming.state = Incoming::State::ready;
    deliveries_.push_back(match.message.number);
    pump_soon();
}

void MessageCore::start_read(std::uint64_t number, Incoming& incoming) {
    const Offer offer = incoming.offers.back();
    MessageBuffer into(offer.from.bytes);
    std::error_code error = from_errno(ENOMEM);
    if (into.size() == offer.from.bytes) {
        error = offer.link->read(
            {.number = number, .peer_life = peer_life_, .into = std::move(into), .region = {}},
            offer.from);
    }
    if (!error) {
        incoming.no_memory_since.reset();
        incoming.state = Incoming::State::reading;
        return;
    }
    if (error != std::errc::not_enough_memory) {
        // A queue that is full gets emptier, and of a link that is gone another one takes over.
        incoming.no_memory_since.reset();
        pump_timer_.arm(clock_.now() + memory_retry);
        return;
    }
    if (!tried_long_enough(incoming.no_memory_since)) return;
    incoming.error = from_errno(ENOMEM);
    incoming.state = Incoming::State::ready;
    pump_soon();
}

bool MessageCore::tried_long_enough(std::optional<Instant>& no_memory_since) {
    const Instant now = clock_.now();
    pump_timer_.arm(now + memory_retry);
    if (!no_memory_since) no_memory_since = now;
    return now - *no_memory_since >= options_.silence_max;
}

void MessageCore::read_ended(MessageLink&, MessageRead read, bool done) {
    if (read.peer_life != peer_life_) return;
    const auto found = incoming_.find(read.number);
    if (found == incoming_.end() || found->second.state != Incoming::State::reading) return;
    Incoming& incoming = found->second;
    incoming.state = done ? Incoming::State::ready : Incoming::State::waiting;
    read.region.reset();
    if (done) incoming.content = std::move(read.into);
    deliver();
    pump_soon();
}

void MessageCore::deliver() {
    while (!deliveries_.empty()) {
        const auto found = incoming_.find(deliveries_.front());
        RTRS_ASSERT(found != incoming_.end());
        if (found->second.state != Incoming::State::ready) return;
        const auto node = incoming_.extract(found);
        const Incoming& incoming = node.mapped();
        deliveries_.pop_front();
        ++ours_.freed;
        ++received_;
        progress_due_ = true;
        pump_soon();
        if (incoming.rendezvous) {
            ++rendezvous_;
            // On each: which of them its sender has lost already is not known here. Without any: it
            // will ask, on another one.
            for (const Offer& offer : incoming.offers) {
                finishes_.push_back({offer.link, node.key(), incoming.tag});
            }
        }
        ReceivedMessage message{
            .tag = incoming.tag, .bytes = incoming.bytes, .error = incoming.error};
        if (!incoming.error) {
            message.content =
                incoming.rendezvous ? Bytes(incoming.content.bytes()) : Bytes(incoming.eager);
        }
        incoming.receiver.received(incoming.receiver.context, message);
    }
}

// --- What we send.

void MessageCore::pump() {
    deliver();
    // Copied: a read that cannot be posted may lose its link.
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

void MessageCore::send_finishes() {
    std::erase_if(finishes_, [](const Finish& finish) {
        if (!finish.link->can_send()) return false;
        finish.link->send({.operation = TagHeaderOperation::finished,
                           .user_data = static_cast<std::uint32_t>(finish.number),
                           .tag = finish.tag},
                          {}, {});
        return true;
    });
}

void MessageCore::send_progress(MessageLink& link) {
    if (!link.can_send()) return;
    std::array<std::byte, TagProgress::wire_bytes> body;
    ours_.emit(body);
    link.send({.user_data = static_cast<std::uint32_t>(TagNotice::progress)}, body, {});
    progress_due_ = false;
}

void MessageCore::send_data(MessageLink& link) {
    while (next_ < outgoing_.size() && link.can_send()) {
        const auto first = outgoing_.begin() + static_cast<std::ptrdiff_t>(next_);
        const bool is_new = first->number == 0;
        if (is_new) {
            if (first->content.size() > peer_.longest_bytes) {
                end_send(first, from_errno(EMSGSIZE));
                continue;
            }
            if (last_number_ - theirs_.freed >= peer_.window) return;
            first->rendezvous =
                first->content.size() > std::min(options_.eager_bytes, peer_.eager_bytes);
        }
        const std::uint64_t number = is_new ? last_number_ + 1 : first->number;
        if (!send_one(link, *first, number)) {
            // One that the peer knows of already cannot be left out.
            if (!tried_long_enough(no_memory_since_) || !is_new) return;
            no_memory_since_.reset();
            end_send(first, from_errno(ENOMEM));
            continue;
        }
        no_memory_since_.reset();
        if (is_new) first->number = ++last_number_;
        ++next_;
    }
}

bool MessageCore::send_one(MessageLink& link, const Outgoing& outgoing, std::uint64_t number) {
    const TagHeader header{.operation = outgoing.rendezvous ? TagHeaderOperation::rendezvous
                                                            : TagHeaderOperation::eager,
                           .user_data = static_cast<std::uint32_t>(number),
                           .tag = outgoing.tag};
    if (!outgoing.rendezvous) {
        link.send(header, {}, outgoing.content.bytes());
        return true;
    }
    const auto memory = link.expose(number, outgoing.content.bytes());
    if (!memory) return false;
    std::array<std::byte, RendezvousHeader::wire_bytes> body;
    RendezvousHeader{memory->address, memory->key, memory->bytes}.emit(body);
    link.send(header, body, {});
    return true;
}

void MessageCore::watch_for_silence() {
    if (sender_ == nullptr || last_number_ == theirs_.received) return silence_timer_.disarm();
    if (!silence_timer_.armed()) silence_timer_.arm(clock_.now() + options_.silence_max);
}

}  // namespace rtrs
