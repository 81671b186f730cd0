// Session: its paths, and its name at the servers that they lead to.

#include <algorithm>
#include <cerrno>
#include <utility>

#include "librnbd/session.h"
#include "rtrs/base/assert.h"
#include "rtrs/limits.h"

namespace rnbd::library {
namespace {

std::string why_not_taken(std::error_code error) {
    if (error != std::errc::address_in_use) return error.message();
    return "a running session on this machine has it, of this program or another";
}

std::string why_not_added(std::error_code error) {
    if (error == std::errc::file_exists) return "it is there already, or still being removed";
    if (error == std::errc::no_space_on_device) {
        return "a session has at most " + std::to_string(rtrs::limits::paths_max) + " paths";
    }
    return error.message();
}

std::string why_not_removed(std::error_code error) {
    if (error == std::errc::device_or_resource_busy) return "it is the last one";
    if (error == std::errc::no_such_file_or_directory) return "the session has none";
    return error.message();
}

}  // namespace

int Session::lock_names() {
    for (const PathSetting& path : settings_.paths) {
        const auto taken = names_.take(settings_.session.name, path.destination);
        if (!taken) continue;
        return error.set(-rtrs::to_errno(taken), "session " + settings_.session.name + " to " +
                                                     path.destination + ": " +
                                                     why_not_taken(taken));
    }
    return 0;
}

void Session::release_name(const std::string& destination) {
    for (const rtrs::PathStatus& path : remote_->rtrs().status().paths) {
        const auto left = PathSetting::parse(path.label);
        if (left && left->destination == destination) return;
    }
    for (const AwaitedPath& path : awaited_->all()) {
        if (PathSetting::parse(path.label)->destination == destination) return;
    }
    names_.release(settings_.session.name, destination);
}

// What it has sent by that path is over: nothing of it lands any more.
void Session::on_session_path_gone(std::string_view label) {
    const auto path = PathSetting::parse(label);
    RTRS_ASSERT(path);  // labels are PathSetting::label()
    release_name(path->destination);
}

int Session::add_path(std::string_view text) {
    auto path = PathSetting::parse(text);
    if (!path) return error.set(-EINVAL, path.error());
    if (path->fabric == PathSetting::Fabric::rdma && !rdma_is_built_in()) {
        const auto why = rtrs::RdmaDevices::not_built_in();
        return cannot_add(*path, why.code, why.text);
    }
    if (state_ == State::fresh) {
        const auto same = [&](const PathSetting& one) { return one.label() == path->label(); };
        if (std::ranges::any_of(settings_.paths, same)) {
            return error.set(-EEXIST, "path " + path->label() + " is there already");
        }
        if (settings_.paths.size() >= rtrs::limits::paths_max) {
            const std::error_code full = rtrs::from_errno(ENOSPC);
            return cannot_add(*path, full, why_not_added(full));
        }
        settings_.paths.push_back(std::move(*path));
        return 0;
    }
    return on_loop([&]() noexcept {
        if (state_ != State::running) return error.set(-ESHUTDOWN, "the session is closing");
        const auto address = fabrics_->address_of(*path);
        if (!address) return cannot_add(*path, address.error().code, address.error().text);
        if (const auto taken = names_.take(settings_.session.name, path->destination)) {
            return cannot_add(*path, taken, why_not_taken(taken));
        }
        // It may be given up at once.
        const std::error_code given_up = given_up_;
        note_given_up({});
        const auto failed = remote_->rtrs().add_path(*address);
        if (failed && !dial_again(path->label(), address->priority)) {
            note_given_up(given_up);
            release_name(path->destination);
            return cannot_add(*path, failed, why_not_added(failed));
        }
        awaited_->forget(path->label());
        return 0;
    });
}

std::optional<rtrs::RdmaDevices::Error> Session::add_awaited(const AwaitedPath& awaited) {
    auto path = PathSetting::parse(awaited.label);
    RTRS_ASSERT(path);  // labels are PathSetting::label()
    path->priority = awaited.priority;
    const auto address = fabrics_->address_of(*path);
    if (!address) return address.error();
    const std::error_code given_up = given_up_;
    note_given_up({});
    const auto failed = remote_->rtrs().add_path(*address);
    if (!failed) return std::nullopt;
    note_given_up(given_up);
    return rtrs::RdmaDevices::Error{failed, why_not_added(failed)};
}

// One that was given up is there still: added once more, it is dialled.
bool Session::dial_again(const std::string& label, rtrs::PathPriority priority) {
    const auto paths = remote_->rtrs().status().paths;
    const bool given_up = std::ranges::any_of(paths, [&](const rtrs::PathStatus& path) {
        return path.label == label && path.state == rtrs::PathState::closed;
    });
    using PathOperation = rtrs::ClientSession::PathOperation;
    if (!given_up || remote_->rtrs().set_path_priority(label, priority)) return false;
    return !remote_->rtrs().operate_path(label, PathOperation::reconnect);
}

int Session::cannot_add(const PathSetting& path, std::error_code code, const std::string& why) {
    return error.set(-rtrs::to_errno(code), "path " + path.label() + ": " + why);
}

int Session::remove_path(std::string_view text) {
    auto path = PathSetting::parse(text);
    if (!path) return error.set(-EINVAL, path.error());
    if (state_ == State::fresh) {
        const auto gone = std::erase_if(
            settings_.paths, [&](const PathSetting& one) { return one.label() == path->label(); });
        return gone > 0 ? 0 : error.set(-ENOENT, "there is no path " + path->label());
    }
    return on_loop([&] {
        if (state_ != State::running) return error.set(-ESHUTDOWN, "the session is closing");
        if (awaited_->forget(path->label())) {
            release_name(path->destination);
            return 0;
        }
        const auto failed =
            remote_->rtrs().operate_path(path->label(), rtrs::ClientSession::PathOperation::remove);
        if (!failed) return 0;
        return error.set(-rtrs::to_errno(failed),
                         "path " + path->label() + ": " + why_not_removed(failed));
    });
}

}  // namespace rnbd::library
