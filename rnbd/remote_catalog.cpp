#include "rnbd/remote_catalog.h"

#include <utility>

#include "rtrs/base/error.h"

namespace rnbd {
namespace {

constexpr int pictures_posted = 2;
constexpr int events_posted = 8;

}  // namespace

RemoteCatalog::RemoteCatalog(rtrs::ClientSession& session, Heard heard, Unreadable unreadable)
    : session_(session), heard_(std::move(heard)), unreadable_(std::move(unreadable)) {}

void RemoteCatalog::ask(Answered answered) {
    unasked_.push_back(std::move(answered));
    if (session_.link_up()) link_ready();
}

void RemoteCatalog::link_ready() {
    if (session_.messages() == nullptr || !session_.peer_has_messages()) {
        following_ = false;
        intent_.reset();
        return fail_questions(rtrs::from_errno(EOPNOTSUPP));
    }
    if (!waiting_) {
        waiting_ = true;
        for (int i = 0; i < pictures_posted; ++i) wait_for(CatalogTag::picture);
        for (int i = 0; i < events_posted; ++i) wait_for(CatalogTag::event);
    }
    if (!following_) follow();
    while (!unasked_.empty()) {
        const std::uint32_t number = ++number_;
        asked_[number] = std::move(unasked_.front());
        unasked_.pop_front();
        if (const auto error = request(false, number)) asked_.extract(number).mapped()(error, {});
    }
}

// Everything that was posted and sent has failed, because the server's end was made anew.
void RemoteCatalog::reset() {
    waiting_ = false;
    following_ = false;
    generation_.reset();  // the known entries may be out of date
    auto lost = std::exchange(asked_, {});
    for (auto& [number, answered] : lost) answered(rtrs::Error::path_lost, {});
    link_ready();
}

void RemoteCatalog::closed() { fail_questions(rtrs::Error::closed); }

void RemoteCatalog::fail_questions(std::error_code error) {
    auto unasked = std::exchange(unasked_, {});
    auto asked = std::exchange(asked_, {});
    for (auto& answered : unasked) answered(error, {});
    for (auto& [number, answered] : asked) answered(error, {});
}

void RemoteCatalog::follow() {
    following_number_ = ++number_;
    following_ = !request(true, following_number_);
}

std::error_code RemoteCatalog::request(bool follow, std::uint32_t number) {
    rtrs::MessageBuffer content(CatalogRequest::wire_bytes);
    if (content.size() == 0) return rtrs::from_errno(ENOMEM);
    CatalogRequest{.follow = follow}.emit(content.bytes());
    return session_.messages()->send(catalog_tag(CatalogTag::request, number), std::move(content),
                                     nullptr, nullptr);
}

void RemoteCatalog::wait_for(CatalogTag what) {
    Slot& slot = what == CatalogTag::picture ? pictures_ : events_;
    static_cast<void>(session_.messages()->receive(
        {.tag = catalog_tag(what, 0), .mask = catalog_tag_mask},
        session_.options().messages->longest_bytes,
        [](void* context, const rtrs::ReceivedMessage& message) {
            const Slot& one = *static_cast<Slot*>(context);
            one.catalog->received(one.what, message);
        },
        &slot));
}

void RemoteCatalog::received(CatalogTag what, const rtrs::ReceivedMessage& message) {
    // reset() or closed() follows, which handles all of them.
    if (message.error == rtrs::Error::path_lost || message.error == rtrs::Error::closed) return;
    wait_for(what);
    if (what == CatalogTag::picture) return picture(message);
    event(message);
}

void RemoteCatalog::picture(const rtrs::ReceivedMessage& message) {
    const auto number = static_cast<std::uint32_t>(message.tag);
    std::error_code error = message.error;
    CatalogPicture parsed;
    if (!error) {
        auto picture = CatalogPicture::parse(message.content);
        if (picture) {
            parsed = std::move(*picture);
        } else {
            error = rtrs::Error::protocol;
            complaint_ = CatalogPicture::complaint(message.content, picture.error());
            if (number == following_number_) unreadable_(complaint_);
        }
    }
    if (number == following_number_) {
        if (!error) return apply(parsed);
        if (error == std::errc::not_enough_memory) follow();
        return;
    }
    auto asked = asked_.extract(number);
    if (!asked.empty()) asked.mapped()(error, parsed.entries);
}

void RemoteCatalog::event(const rtrs::ReceivedMessage& message) {
    // The event belongs to an earlier request to follow.
    if (static_cast<std::uint32_t>(message.tag) != following_number_) return;
    const auto event = message.error ? std::unexpected(ParseError::too_short)
                                     : CatalogEvent::parse(message.content);
    if (!event || !generation_ || event->generation != *generation_ + 1) return follow();
    const bool one_more = event->kind != CatalogEventKind::removed && !event->entry.name.empty() &&
                          !entries_.contains(event->entry.name);
    if (one_more && entries_.size() >= catalog_entries_max) return follow();
    generation_ = event->generation;
    apply(*event);
}

void RemoteCatalog::apply(const CatalogPicture& picture) {
    generation_ = picture.generation;
    auto before = std::exchange(entries_, {});
    std::vector<CatalogEvent> news;
    const auto note = [&](CatalogEventKind kind, const CatalogEntry& entry) {
        news.push_back({.kind = kind, .generation = picture.generation, .entry = entry});
    };
    for (const CatalogEntry& entry : picture.entries) {
        entries_[entry.name] = entry;
        const auto old = before.extract(entry.name);
        if (old.empty()) {
            note(CatalogEventKind::added, entry);
            continue;
        }
        const CatalogEntry& was = old.mapped();
        if (was.waiting != entry.waiting) {
            note(entry.waiting ? CatalogEventKind::waiting : CatalogEventKind::ready, entry);
        }
        const bool resized =
            was.size_bytes != entry.size_bytes || was.block_bytes != entry.block_bytes;
        if (resized) note(CatalogEventKind::resized, entry);
        if (was.writable != entry.writable) note(CatalogEventKind::access, entry);
    }
    for (const auto& [name, entry] : before) note(CatalogEventKind::removed, entry);
    const auto intent = picture.draining ? ServerIntent::drain : ServerIntent::serve;
    const auto known = std::exchange(intent_, intent).value_or(ServerIntent::serve);
    if (known != intent) {
        note(picture.draining ? CatalogEventKind::draining : CatalogEventKind::accepting, {});
    }
    for (const CatalogEvent& event : news) heard_(event);
}

void RemoteCatalog::apply(const CatalogEvent& event) {
    switch (event.kind) {
        case CatalogEventKind::added:
        case CatalogEventKind::resized:
        case CatalogEventKind::access:
        case CatalogEventKind::waiting:
        case CatalogEventKind::ready:
        case CatalogEventKind::taken:
            entries_[event.entry.name] = event.entry;
            break;
        case CatalogEventKind::removed:
            entries_.erase(event.entry.name);
            break;
        case CatalogEventKind::draining:
            intent_ = ServerIntent::drain;
            break;
        case CatalogEventKind::accepting:
            intent_ = ServerIntent::serve;
            break;
        case CatalogEventKind::ending:
            intent_ = ServerIntent::end;
            break;
    }
    heard_(event);
}

}  // namespace rnbd
