#include "rnbd-client/not_open.h"

#include <algorithm>
#include <string_view>

namespace rnbd {
namespace {

using rtrs::PathState;
using rtrs::PathStatus;
using rtrs::Refusing;

constexpr std::string_view hold_time_is_over = "; its hold time is over, requests fail";

bool is_up(const PathStatus& path) { return path.state == PathState::connected; }

// And stays so until somebody says otherwise.
bool is_closed(const PathStatus& path) {
    return path.state == PathState::closing || path.state == PathState::closed;
}

std::string reason_of_paths(const rtrs::ClientSessionStatus& session) {
    const auto has_reason = [](const PathStatus& path) { return !path.reason.empty(); };
    const auto first = std::ranges::find_if(session.paths, has_reason);
    if (first == session.paths.end()) return session.reason;
    const bool same = std::ranges::all_of(session.paths, [&](const PathStatus& path) {
        return path.reason == first->reason || path.reason.empty();
    });
    if (same) return first->reason;
    std::string text;
    for (const auto& path : session.paths) {
        if (!has_reason(path)) continue;
        text += (text.empty() ? "" : "; ") + path.label + ": " + path.reason;
    }
    return text;
}

std::string why_no_path(const rtrs::ClientSessionStatus& session) {
    if (session.paths.empty()) return "none of its paths has its device yet";
    if (!std::ranges::all_of(session.paths, is_closed)) return reason_of_paths(session);
    if (session.refusing >= Refusing::after_all_attempts) return session.reason;
    return reason_of_paths(session) + "; no path will be dialled";
}

std::string_view what_fails(Refusing refusing) {
    switch (refusing) {
        case Refusing::nothing:
            return "";
        case Refusing::after_fail_fast_time:
            return "; its fail-fast time is over, new requests fail";
        case Refusing::after_hold_time:
            return hold_time_is_over;
        case Refusing::after_all_attempts:
            return "; requests fail";
        case Refusing::taken_over:
            return "; requests fail until its devices are unmapped and mapped again";
    }
    return "";
}

}  // namespace

std::string why_not_connected(const rtrs::ClientSessionStatus& session) {
    const bool says_itself = std::ranges::any_of(session.paths, is_up) && !session.reason.empty();
    std::string text = says_itself ? session.reason : why_no_path(session);
    return text.append(what_fails(session.refusing));
}

std::string why_not_open(RemoteVolume& volume) {
    const bool waits =
        volume.state() == VolumeState::opening || volume.state() == VolumeState::reopening;
    if (!waits || volume.open_error()) return volume.reason();
    const rtrs::ClientSessionStatus session = volume.session().rtrs().status();
    const bool all_fails = volume.hold_time_over();
    if (session.link_up) {
        const std::string why = volume.waits_for_given_up()
                                    ? rtrs::why_unsettled
                                    : "the server has not said yet whether it may be opened";
        return why + std::string(all_fails ? hold_time_is_over : "");
    }
    std::string text = why_not_connected(session);
    if (all_fails && session.refusing < Refusing::after_hold_time) text += hold_time_is_over;
    if (std::ranges::any_of(session.paths, is_up)) return text;
    return "the session has no path: " + text;
}

}  // namespace rnbd
