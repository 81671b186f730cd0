#include "rnbd-client/awaited_paths.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/log/log.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

constexpr rtrs::Duration interval = std::chrono::seconds(1);

auto with_label(std::string_view label) {
    return [label](const AwaitedPath& one) { return one.path.to_string() == label; };
}

}  // namespace

AwaitedPaths::AwaitedPaths(rtrs::Clock& clock, std::string session, Owner& owner)
    : clock_(clock),
      session_(std::move(session)),
      owner_(owner),
      timer_(clock, this, rtrs::member_call<&AwaitedPaths::try_all>) {}

bool AwaitedPaths::may_come(std::error_code error) noexcept {
    return error == std::errc::no_such_device || error == std::errc::address_not_available ||
           error == std::errc::network_unreachable || error == std::errc::host_unreachable;
}

void AwaitedPaths::add(ClientConfig::Path path, std::string reason) {
    const rtrs::Instant now = clock_.now();
    all_.push_back({.path = std::move(path),
                    .reason = std::move(reason),
                    .since = now,
                    .next_attempt = now + interval});
    log(all_.back());
    if (!timer_.armed()) timer_.arm(now + interval);
}

const AwaitedPath* AwaitedPaths::find(std::string_view label) const noexcept {
    const auto found = std::ranges::find_if(all_, with_label(label));
    return found == all_.end() ? nullptr : &*found;
}

bool AwaitedPaths::forget(std::string_view label) noexcept {
    return std::erase_if(all_, with_label(label)) > 0;
}

bool AwaitedPaths::set_priority(std::string_view label, rtrs::PathPriority priority) noexcept {
    const auto found = std::ranges::find_if(all_, with_label(label));
    if (found == all_.end()) return false;
    found->path.priority = priority;
    return true;
}

void AwaitedPaths::try_all() {
    if (all_.empty()) return;
    const rtrs::Instant next = clock_.now() + interval;
    timer_.arm(next);
    if (!owner_.may_add_awaited()) return;
    std::erase_if(all_, [&](AwaitedPath& one) {
        std::string why = owner_.add_awaited(one.path);
        if (why.empty()) return true;
        const bool is_news = why != one.reason;
        one.reason = std::move(why);
        if (is_news) log(one);
        ++one.attempts;
        one.next_attempt = next;
        return false;
    });
    if (all_.empty()) timer_.disarm();
}

void AwaitedPaths::log(const AwaitedPath& one) const {
    logger("rnbd.client")
        .warn("{}: path {} is not used yet: {}; tried again every second", session_,
              one.path.to_string(), one.reason);
}

}  // namespace rnbd
