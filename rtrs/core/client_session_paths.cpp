// ClientSession: the paths that it has: made at open() or added, told by the operator what to do,
// removed; and when one that was accepted may join the others.

#include <algorithm>

#include "rtrs/base/assert.h"
#include "rtrs/core/client_session_inside.h"
#include "rtrs/limits.h"

namespace rtrs {

std::error_code ClientSession::Inside::make_path(const PathAddress& address) {
    if (address.fabric == nullptr || address.destination.empty()) return from_errno(EINVAL);
    if (paths.size() >= limits::paths_max) return from_errno(ENOSPC);
    for (const PathRecord& record : paths) {
        if (record.path->address_label() == label_of(address)) return from_errno(EEXIST);
    }
    const auto registered = memory.of(*address.fabric);
    if (!registered) return registered.error();
    PathRecord record;
    record.path =
        std::make_unique<ClientPath>(environment, options, address, uuid, **registered, *this);
    record.fence_probe = std::make_unique<FenceProbe>(environment.clock, options, *this);
    paths.push_back(std::move(record));
    loads.emplace_back().priority = address.priority;
    return {};
}

std::error_code ClientSession::Inside::add_path(const PathAddress& address) {
    if (!opened || closing || dead) return from_errno(ENOTCONN);
    if (const auto error = make_path(address)) return error;
    trace(TraceLevel::info, "path " + label_of(address) + " is added");
    if (paths.size() == 1 && !link_up) reason = "connecting";
    if (other_paths_opened) {
        paths.back().path->open();
    } else {
        arm_head_start();
    }
    return {};
}

std::error_code ClientSession::Inside::operate(std::string_view label, PathOperation operation) {
    if (!opened || closing || dead) return from_errno(ENOTCONN);
    const auto record = std::ranges::find_if(paths, [&](const PathRecord& one) {
        return !one.removing && one.path->address_label() == label;
    });
    if (record == paths.end()) return from_errno(ENOENT);
    const auto staying =
        std::ranges::count_if(paths, [](const PathRecord& one) { return !one.removing; });
    ClientPath& path = *record->path;
    switch (operation) {
        case PathOperation::remove:
            if (staying == 1) return from_errno(EBUSY);
            trace(TraceLevel::info, "path " + std::string(path.address_label()) + " is removed");
            record->removing = true;
            if (path.closed()) {
                failure_timer.arm(environment.clock.now());
                give_up_if_out_of_paths();
            }
            path.close();
            return {};
        case PathOperation::disconnect:
            return path.disconnect();
        case PathOperation::reconnect:
            return path.reconnect();
    }
    return from_errno(EINVAL);
}

// Must not be called from inside a path's own call.
void ClientSession::Inside::erase_removed_paths() {
    for (std::size_t i = 0; i < paths.size();) {
        const auto gone = static_cast<std::uint16_t>(i);
        if (!paths[i].path->closed() || !paths[i].removing || !paths[i].fence_probe->drained() ||
            waits_for_fence(gone)) {
            ++i;
            continue;
        }
        const auto renumber = [gone](std::uint16_t& index) {
            if (index == no_path) return;
            if (index == gone) {
                index = no_path;
            } else if (index > gone) {
                --index;
            }
        };
        for (std::uint32_t id = 0; id < geometry.queue_depth; ++id) {
            renumber(requests[id].path);
            renumber(requests[id].fate_path);
        }
        renumber(user_path);
        const std::string label(paths[i].path->address_label());
        paths.erase(paths.begin() + static_cast<std::ptrdiff_t>(i));
        loads.erase(loads.begin() + static_cast<std::ptrdiff_t>(i));
        handler.on_path_gone(label);
    }
}

std::uint16_t ClientSession::Inside::index_of(const ClientPath& path) const noexcept {
    for (std::size_t i = 0; i < paths.size(); ++i) {
        if (paths[i].path.get() == &path) return static_cast<std::uint16_t>(i);
    }
    RTRS_ASSERT(false);
    return no_path;
}

void ClientSession::Inside::latency_measured(ClientPath& path, Duration latency) {
    loads[index_of(path)].latency = latency;
    while (ClientPath* const joining = doubt.may_join(path, path.answered())) {
        doubt.leaves(*joining);
        joining->session_is_known();
    }
}

// --- One session at the server, or two (session_doubt.h).

bool ClientSession::Inside::has_to_wait(ClientPath& path) {
    if (paths_up == 0 || !doubt.possible()) return false;
    doubt.waits(path);
    ask_for_signs(path);
    return true;
}

void ClientSession::Inside::ask_for_signs(const ClientPath& waiting) {
    for (const PathRecord& record : paths) {
        if (!record.path->connected()) continue;
        doubt.wants_sign(waiting, *record.path, record.path->asked());
        record.path->ask();
    }
}

// Those of which they wanted a sign have ended. Not called from inside a path's own call.
void ClientSession::Inside::join_without_hope() {
    while (ClientPath* const path = closing ? nullptr : doubt.without_hope()) {
        if (paths_up > 0) {
            ask_for_signs(*path);
            continue;
        }
        doubt.leaves(*path);
        path->session_is_known();
    }
}

}  // namespace rtrs
