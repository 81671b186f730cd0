#include "rnbd/awaited_paths.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

constexpr rtrs::Duration interval = std::chrono::seconds(1);

}  // namespace

AwaitedPaths::AwaitedPaths(rtrs::Clock& clock, Owner& owner)
    : clock_(clock),
      owner_(owner),
      timer_(clock, this, rtrs::member_call<&AwaitedPaths::try_all>) {}

bool AwaitedPaths::may_come(std::error_code error) noexcept {
    return error == std::errc::no_such_device || error == std::errc::address_not_available ||
           error == std::errc::network_unreachable || error == std::errc::host_unreachable;
}

void AwaitedPaths::add(std::string label, rtrs::PathPriority priority,
                       rtrs::RdmaDevices::Error reason) {
    const rtrs::Instant now = clock_.now();
    all_.push_back({.label = std::move(label),
                    .priority = priority,
                    .reason = std::move(reason),
                    .since = now,
                    .next_attempt = now + interval});
    owner_.on_awaited(all_.back());
    if (!timer_.armed()) timer_.arm(now + interval);
}

const AwaitedPath* AwaitedPaths::find(std::string_view label) const noexcept {
    const auto found = std::ranges::find(all_, label, &AwaitedPath::label);
    return found == all_.end() ? nullptr : &*found;
}

bool AwaitedPaths::forget(std::string_view label) noexcept {
    return std::erase_if(all_, [&](const AwaitedPath& one) { return one.label == label; }) > 0;
}

bool AwaitedPaths::set_priority(std::string_view label, rtrs::PathPriority priority) noexcept {
    const auto found = std::ranges::find(all_, label, &AwaitedPath::label);
    if (found == all_.end()) return false;
    found->priority = priority;
    return true;
}

void AwaitedPaths::try_all() {
    if (all_.empty()) return;
    const rtrs::Instant next = clock_.now() + interval;
    timer_.arm(next);
    if (!owner_.may_add_awaited()) return;
    std::erase_if(all_, [&](AwaitedPath& one) {
        auto why = owner_.add_awaited(one);
        if (!why) return true;
        const bool is_news = why->text != one.reason.text;
        one.reason = std::move(*why);
        if (is_news) owner_.on_awaited(one);
        ++one.attempts;
        one.next_attempt = next;
        return false;
    });
    if (all_.empty()) timer_.disarm();
}

}  // namespace rnbd
