#include "rnbd-client/not_open.h"

#include <algorithm>
#include <string_view>

#include "rtrs/base/error.h"

namespace rnbd {

std::string why_no_path(const rtrs::ClientSessionStatus& session, std::error_code refuses_new) {
    const bool taken_over = refuses_new == rtrs::Error::rejected;
    if (taken_over) return session.reason;
    const auto has_reason = [](const rtrs::PathStatus& path) { return !path.reason.empty(); };
    const auto first = std::ranges::find_if(session.paths, has_reason);
    if (first == session.paths.end()) return session.reason;
    const bool same = std::ranges::all_of(session.paths, [&](const rtrs::PathStatus& path) {
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

std::string why_not_open(RemoteVolume& volume) {
    const bool waits =
        volume.state() == VolumeState::opening || volume.state() == VolumeState::reopening;
    if (!waits || volume.open_error()) return volume.reason();
    const rtrs::ClientSession& rtrs = volume.session().rtrs();
    const rtrs::ClientSessionStatus session = rtrs.status();
    const bool path_up = std::ranges::any_of(session.paths, [](const rtrs::PathStatus& path) {
        return path.state == rtrs::PathState::connected;
    });
    std::string text;
    if (session.link_up) {
        text = "the server has not said yet whether it may be opened";
    } else if (path_up && !session.reason.empty()) {
        text = session.reason;
    } else {
        text = "the session has no path: " + why_no_path(session, rtrs.refuses_new());
    }
    if (volume.reason().ends_with(hold_time_is_over)) text += hold_time_is_over;
    return text;
}

}  // namespace rnbd
