// MessageCore: what the peer sends is matched and handed to whoever posted a receive for it.
#include <algorithm>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/core/message_service.h"

namespace rtrs {

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
    progress_due_ = true;  // its sender does not know yet that it arrived
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
    matcher_ids_.erase(match.receive.context);
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
    // These pass: a full queue gets emptier, and another link takes over from one that is gone.
    const bool passes = error == std::errc::no_buffer_space || error == std::errc::not_connected ||
                        error == std::errc::no_such_device;
    if (passes) {
        incoming.no_memory_since.reset();
        try_again_soon();
        return;
    }
    if (!tried_long_enough(incoming.no_memory_since)) return;
    incoming.error = from_errno(ENOMEM);
    incoming.state = Incoming::State::ready;
    pump_soon();
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
            // Sent on each link, because it is not known here which of them the sender has already
            // lost. If there is no link, the sender will ask again on another one.
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

}  // namespace rtrs
