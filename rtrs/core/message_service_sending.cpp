// MessageCore: what this side sends, and what the peer reports about it.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "rtrs/base/error.h"
#include "rtrs/core/message_service.h"

namespace rtrs {

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
            // A message that the peer already knows of cannot be skipped.
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

// --- What the peer reports about it.

void MessageCore::apply(const TagProgress& progress, MessageLink& link) {
    if (progress.received > last_number_) return link.fail("progress of what was never sent");
    const bool news = progress.received > theirs_.received;
    // Notices on different links may overtake each other.
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
    if (found == outgoing_.end()) return;  // already said on another link
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
    // A peer that says it has finished with a message while it still reads it cannot have all of
    // it.
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

}  // namespace rtrs
