#include "rnbd-server/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/log/log.h"
#include "rtrs/base/error.h"
#include "rtrs/base/log_rate_limit.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

// A subscriber gets a new picture when it has fewer messages on their way than this.
constexpr std::uint32_t caught_up = 8;
constexpr rtrs::Duration end_time_max = std::chrono::milliseconds(500);

// Whether the session may write to the export; nullopt: it may not even read it.
std::optional<bool> writable_by(const std::vector<ServerConfig::Allow>& allow, bool read_only,
                                const rtrs::ServerSession& session) {
    std::optional<bool> writable;
    for (const ServerConfig::Allow& one : allow) {
        if (one.session != session.name()) continue;
        if (one.address && !one.address->contains(session.peer_host())) continue;
        writable = writable.value_or(false) || (one.access != AccessMode::read_only && !read_only);
    }
    return writable;
}

std::optional<bool> writable_by(const Volume& volume, const rtrs::ServerSession& session) {
    const ServerConfig::Export& config = volume.config();
    return writable_by(config.allow, config.storage.only_reads(), session);
}

CatalogEntry entry_of(const Volume& volume) {
    const StorageOptions& storage = volume.config().storage;
    const bool ready = volume.state() == Volume::State::ready;
    return {.name = volume.name(),
            .size_bytes = volume.size_bytes(),
            .block_bytes = ready ? volume.geometry().logical_block_bytes
                                 : static_cast<std::uint32_t>(storage.logical_block_bytes),
            .in_use = static_cast<std::uint32_t>(volume.opens().size()),
            .waiting = !ready};
}

}  // namespace

struct Catalog::Subscriber {
    Subscriber(Catalog& its_catalog, rtrs::ServerSession& its_session,
               rtrs::MessageService& its_service)
        : catalog(its_catalog),
          session(its_session),
          service(its_service),
          goes_on(its_catalog.clock_, this, [](void* self) {
              auto& asking = *static_cast<Subscriber*>(self);
              asking.catalog.wait_for_request(asking);
          }) {}

    Catalog& catalog;
    rtrs::ServerSession& session;
    rtrs::MessageService& service;
    bool follows = false;
    bool behind = false;  // an event found no room, so a new picture is due
    bool down = false;
    bool asked = false;          // a request is under way, and the next one waits
    std::uint32_t pictures = 0;  // on their way
    rtrs::Timer goes_on;
    rtrs::LogRateLimit bad_requests;
    rtrs::LogRateLimit bad_pictures;
    std::uint32_t number = 0;
    std::uint64_t generation = 0;
};

Catalog::Catalog(rtrs::Clock& clock, const Volumes& volumes)
    : clock_(clock),
      volumes_(volumes),
      timer_(clock, this, rtrs::member_call<&Catalog::look>),
      end_timer_(clock, this, rtrs::member_call<&Catalog::end_told>) {}

Catalog::~Catalog() = default;

// --- Sessions.

void Catalog::session_up(rtrs::ServerSession& session) {
    rtrs::MessageService* const service = session.messages();
    if (service == nullptr) return;
    auto& subscriber =
        *(subscribers_[&session] = std::make_unique<Subscriber>(*this, session, *service));
    wait_for_request(subscriber);
}

void Catalog::session_down(rtrs::ServerSession& session) {
    // Its messages have failed before, and none of their handlers is called any more.
    subscribers_.erase(&session);
}

// The next request is received when the peer has taken the answer; further ones wait in the
// session's window. A picture costs the server far more than a request costs the peer.
void Catalog::wait_for_request(Subscriber& subscriber) {
    subscriber.asked = false;
    static_cast<void>(subscriber.service.receive(
        {.tag = catalog_tag(CatalogTag::request, 0), .mask = catalog_tag_mask},
        CatalogRequest::wire_bytes,
        [](void* context, const rtrs::ReceivedMessage& message) {
            auto& asking = *static_cast<Subscriber*>(context);
            asking.catalog.requested(asking, message);
        },
        &subscriber));
}

void Catalog::requested(Subscriber& subscriber, const rtrs::ReceivedMessage& message) {
    if (message.error == rtrs::Error::closed) {
        subscriber.down = true;
        return;
    }
    if (message.error == rtrs::Error::path_lost) subscriber.follows = false;
    subscriber.asked = true;
    if (!message.error) answer(subscriber, message);
    wait_if_answered(subscriber);
}

void Catalog::wait_if_answered(Subscriber& subscriber) {
    const bool goes_on = subscriber.asked && subscriber.pictures == 0 && !subscriber.down;
    if (goes_on) subscriber.goes_on.arm(clock_.now());
}

void Catalog::answer(Subscriber& subscriber, const rtrs::ReceivedMessage& message) {
    const auto request = CatalogRequest::parse(message.content);
    if (!request) {
        if (const auto times = subscriber.bad_requests.happened(clock_.now())) {
            logger("rnbd.session")
                .warn("{}: bad catalog request: {}{}", printable(subscriber.session.name()),
                      text(request.error()), rtrs::how_often(*times));
        }
        return;
    }
    if (timer_.armed()) {
        timer_.disarm();
        look();
    }
    const auto number = static_cast<std::uint32_t>(message.tag);
    if (request->follow) {
        subscriber.follows = true;
        subscriber.behind = false;
        subscriber.number = number;
    }
    send_picture(subscriber, number);
}

// --- What is told.

// Compares the exports with what was told.
void Catalog::look() {
    ++looks_;
    for (const auto& volume : volumes_) {
        const auto [place, added] = known_.try_emplace(volume->name());
        Known& now = place->second;
        now.seen = looks_;
        Known before;
        before.entry = std::exchange(now.entry, entry_of(*volume));
        const auto& allow = volume->config().allow;
        const bool read_only = volume->config().storage.only_reads();
        const bool other_rules = now.read_only != read_only || now.allow != allow;
        if (other_rules) {
            before.read_only = std::exchange(now.read_only, read_only);
            before.allow = std::exchange(now.allow, allow);
        }
        if (added) {
            tell(CatalogEventKind::added, now);
            continue;
        }
        if (now.entry.waiting) {
            // While the export waits, its last known size and block size are shown.
            now.entry.size_bytes = before.entry.size_bytes;
            now.entry.block_bytes = before.entry.block_bytes;
        }
        if (before.entry.waiting != now.entry.waiting) {
            tell(now.entry.waiting ? CatalogEventKind::waiting : CatalogEventKind::ready, now);
        }
        const bool resized = before.entry.size_bytes != now.entry.size_bytes ||
                             before.entry.block_bytes != now.entry.block_bytes;
        if (resized) tell(CatalogEventKind::resized, now);
        if (other_rules) tell_access(before, now);
    }
    for (auto one = known_.begin(); one != known_.end();) {
        if (one->second.seen == looks_) {
            ++one;
            continue;
        }
        tell(CatalogEventKind::removed, one->second);
        one = known_.erase(one);
    }
}

void Catalog::tell_size(const Volume& volume) {
    const auto before = known_.find(volume.name());
    const bool is_news =
        before == known_.end() || before->second.entry.size_bytes != entry_of(volume).size_bytes;
    look();
    if (!is_news) tell(CatalogEventKind::resized, before->second);
}

void Catalog::tell(CatalogEventKind kind, const Known& known) {
    for (const auto& [session, subscriber] : subscribers_) {
        if (!subscriber->follows) continue;
        const auto writable = writable_by(known.allow, known.read_only, *session);
        if (!writable) continue;
        CatalogEvent event{.kind = kind, .entry = known.entry};
        event.entry.writable = *writable;
        send(*subscriber, event);
    }
}

void Catalog::taken(const rtrs::ServerSession& session, const Volume& volume) {
    const auto found = subscribers_.find(&session);
    if (found == subscribers_.end() || !found->second->follows) return;
    CatalogEvent event{.kind = CatalogEventKind::taken, .entry = entry_of(volume)};
    event.entry.writable = writable_by(volume, session).value_or(false);
    send(*found->second, event);
}

// Tells each session what the new rules mean for it.
void Catalog::tell_access(const Known& before, const Known& now) {
    for (const auto& [session, subscriber] : subscribers_) {
        if (!subscriber->follows) continue;
        const auto was = writable_by(before.allow, before.read_only, *session);
        const auto is = writable_by(now.allow, now.read_only, *session);
        if (was == is) continue;
        CatalogEvent event{.kind = !was  ? CatalogEventKind::added
                                   : !is ? CatalogEventKind::removed
                                         : CatalogEventKind::access,
                           .entry = now.entry};
        event.entry.writable = is.value_or(false);
        send(*subscriber, event);
    }
}

bool Catalog::tell(CatalogEventKind kind) {
    bool anybody = false;
    for (const auto& [session, subscriber] : subscribers_) {
        if (!subscriber->follows || subscriber->down) continue;
        anybody = true;
        send(*subscriber, {.kind = kind});
    }
    return anybody;
}

void Catalog::send(Subscriber& subscriber, const CatalogEvent& what) {
    if (subscriber.behind || subscriber.down) return;
    CatalogEvent event = what;
    event.generation = ++subscriber.generation;
    rtrs::MessageBuffer content(event.wire_bytes());
    std::error_code error = content.size() == 0 ? rtrs::from_errno(ENOMEM) : std::error_code{};
    if (!error) {
        event.emit(content.bytes());
        error = subscriber.service.send(
            catalog_tag(CatalogTag::event, subscriber.number), std::move(content),
            [](void* context, std::error_code) {
                auto& told = *static_cast<Subscriber*>(context);
                told.catalog.sent(told);
            },
            &subscriber);
    }
    if (error) subscriber.behind = true;
}

void Catalog::send_picture(Subscriber& subscriber, std::uint32_t number) {
    CatalogPicture picture{.generation = subscriber.generation,
                           .draining = intent_ == ServerIntent::drain};
    for (const auto& volume : volumes_) {
        const auto writable = writable_by(*volume, subscriber.session);
        if (!writable) continue;
        picture.entries.push_back(entry_of(*volume));
        picture.entries.back().writable = *writable;
    }
    if (picture.entries.size() > catalog_entries_max) {
        const std::string why = fmt::format("found {} of them, expected at most {}",
                                            picture.entries.size(), catalog_entries_max);
        return picture_failed(subscriber, rtrs::from_errno(EMSGSIZE), why);
    }
    rtrs::MessageBuffer content(picture.wire_bytes());
    if (content.size() == 0) {
        subscriber.behind = subscriber.follows;
        return;
    }
    picture.emit(content.bytes());
    const auto error = subscriber.service.send(
        catalog_tag(CatalogTag::picture, number), std::move(content),
        [](void* context, std::error_code failed) {
            auto& told = *static_cast<Subscriber*>(context);
            told.catalog.picture_sent(told, failed);
        },
        &subscriber);
    if (error) return picture_failed(subscriber, error, error.message());
    ++subscriber.pictures;
}

void Catalog::picture_sent(Subscriber& subscriber, std::error_code error) {
    --subscriber.pictures;
    if (error == rtrs::Error::closed) {
        subscriber.down = true;
    } else if (error == rtrs::Error::path_lost) {
        subscriber.follows = false;
    } else if (error) {
        picture_failed(subscriber, error, error.message());
    }
    sent(subscriber);
    wait_if_answered(subscriber);
}

void Catalog::picture_failed(Subscriber& subscriber, std::error_code error,
                             const std::string& why) {
    // A peer whose events go on asks again at each of them.
    if (const auto times = subscriber.bad_pictures.happened(clock_.now())) {
        logger("rnbd.session")
            .warn("{}: what it may see of {} exports cannot be sent: {}{}",
                  printable(subscriber.session.name()), volumes_.size(), why,
                  rtrs::how_often(*times));
    }
    subscriber.behind = subscriber.follows && error != std::errc::message_size;
}

void Catalog::sent(Subscriber& subscriber) {
    if (subscriber.behind && subscriber.follows && !subscriber.down &&
        subscriber.service.status().sending < caught_up) {
        subscriber.behind = false;
        send_picture(subscriber, subscriber.number);
    }
    if (!ended_) return;
    const bool all = std::ranges::all_of(subscribers_, [](const auto& one) {
        return !one.second->follows || one.second->service.status().sending == 0;
    });
    if (all) end_timer_.arm(clock_.now());
}

// --- The server itself.

void Catalog::intend(ServerIntent intent) {
    if (std::exchange(intent_, intent) == intent) return;
    tell(intent == ServerIntent::drain ? CatalogEventKind::draining : CatalogEventKind::accepting);
}

void Catalog::end(std::function<void()> done) {
    intent_ = ServerIntent::end;
    ended_ = std::move(done);
    const bool anybody = tell(CatalogEventKind::ending);
    end_timer_.arm(anybody ? clock_.now() + end_time_max : clock_.now());
}

void Catalog::end_told() {
    if (ended_) std::exchange(ended_, nullptr)();
}

}  // namespace rnbd
