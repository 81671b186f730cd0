// Session: its volumes.

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "librnbd/session.h"

namespace rnbd::library {

int Session::open_volume(std::string_view name, unsigned flags, Volume*& volume) {
    if (const auto right = check_device_name(name); !right) {
        return error.set(-EINVAL, "volume: expected a name of 1 to 254 bytes without \"..\"");
    }
    AccessMode access = AccessMode::read_write;
    if (flags == RNBD_READ_ONLY) access = AccessMode::read_only;
    if (flags == RNBD_MIGRATION) access = AccessMode::migration;
    if (flags > RNBD_MIGRATION) {
        return error.set(-EINVAL, "flags: expected 0, RNBD_READ_ONLY or RNBD_MIGRATION");
    }
    return on_loop([&]() noexcept {
        if (state_ != State::running) return error.set(-ESHUTDOWN, "the session is closing");
        const auto same = [&](const std::unique_ptr<Volume>& one) {
            return one->remote().options().name == name;
        };
        const auto there = std::ranges::find_if(volumes_, same);
        if (there != volumes_.end()) {
            return error.set(-EEXIST, "the session has volume " + std::string(name) + " already" +
                                          ((*there)->closing() ? ", which is closing" : ""));
        }
        volumes_.push_back(std::make_unique<Volume>(
            *this, RemoteVolumeOptions{.name = std::string(name), .access = access}));
        volume = volumes_.back().get();
        requests_->joined();
        volume->note_given_up(given_up_);
        return 0;
    });
}

int Session::wait_volume(Volume& volume, int timeout_ms) {
    if (const int failed = check_thread(volume.error)) return failed;
    if (loop_->in_turn()) return volume.error.set(-EDEADLK, "called from inside a callback");
    std::optional<Loop::Deadline> deadline;
    if (timeout_ms >= 0) {
        deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    }
    // It stays until this is through, also if it is closed meanwhile.
    on_loop([&] {
        ++volume.requests;
        return 0;
    });
    const int result = wait_until_settled(volume, deadline);
    on_loop([&] {
        volume.request_ended();
        return 0;
    });
    return result;
}

int Session::wait_until_settled(Volume& volume, std::optional<Loop::Deadline> deadline) {
    // What was known may have changed: nothing else may be done between a wait and the next.
    if (!loop_->threaded() && !volume.known().open) loop_->turn(rtrs::Duration::zero());
    // A refusal that was there before may be out of date: while there is time, the next attempt's
    // result is the answer, unless there is none.
    VolumeKnown known;
    std::optional<std::uint64_t> refused_before;
    loop_->wait_until(
        [&] {
            known = volume.known();
            if (!refused_before) refused_before = known.times_refused;
            const bool refused_anew = known.refused && known.times_refused != *refused_before;
            return known.open || refused_anew || known.superseded || known.closing ||
                   known.given_up;
        },
        deadline);
    if (known.closing) return volume.error.set(-ESHUTDOWN, "the volume is closing");
    if (known.open) return 0;
    if (known.refused && !known.given_up)
        return volume.error.set(-rtrs::to_errno(known.refused), known.reason);
    std::string why;
    on_loop([&] {
        why = why_not_open(volume);
        return 0;
    });
    return volume.error.set(known.given_up ? -rtrs::to_errno(known.given_up) : -ETIMEDOUT, why);
}

std::string Session::why_not_open(const Volume& volume) {
    std::string text = volume.remote().reason();
    const rtrs::ClientSessionStatus status = remote_->rtrs().status();
    if (status.link_up) return text;
    for (const rtrs::PathStatus& path : status.paths) {
        text += "; path " + path.label + ": " + to_string(path.state);
        if (!path.reason.empty()) text += ", " + path.reason;
    }
    return text;
}

int Session::get_info(Volume& volume, rnbd_volume_info& info, std::size_t info_bytes) {
    if (const int failed = check_thread(volume.error)) return failed;
    const auto lock = loop_->lock();
    const VolumeKnown& known = volume.known();
    if (!known.ever_open) {
        return volume.error.set(-ENOTCONN, "the volume was not open yet: " + known.reason);
    }
    const VolumeGeometry& geometry = known.geometry;
    const bool read_only = volume.remote().options().access == AccessMode::read_only;
    unsigned flags = 0;
    const auto add = [&](bool holds, unsigned flag) { flags |= holds ? flag : 0; };
    add(known.open && !known.closing, RNBD_IS_OPEN);
    add(read_only, RNBD_IS_READ_ONLY);
    add(geometry.write_cache, RNBD_HAS_WRITE_CACHE);
    add(geometry.force_unit_access, RNBD_HAS_FUA);
    add(geometry.discard_bytes_max > 0 && !read_only, RNBD_HAS_DISCARD);
    add(geometry.write_zeroes_bytes_max > 0 && !read_only, RNBD_HAS_WRITE_ZEROES);
    add(geometry.write_zeroes_bytes_max > 0 && geometry.fast_zero && !read_only,
        RNBD_HAS_FAST_ZERO);
    add(geometry.extents, RNBD_HAS_EXTENTS);
    const rnbd_volume_info now{.size_bytes = geometry.size_bytes,
                               .flags = flags,
                               .block_bytes = geometry.logical_block_bytes,
                               .physical_block_bytes = geometry.physical_block_bytes,
                               .max_io_bytes = known.max_io_bytes,
                               .queue_depth = known.queue_depth,
                               .discard_granularity_bytes = geometry.discard_granularity_bytes,
                               .losses = known.losses};
    std::memset(&info, 0, info_bytes);
    std::memcpy(&info, &now, std::min(info_bytes, sizeof now));
    return 0;
}

int Session::close_volume(Volume& volume, rnbd_done_fn done, void* context) {
    return on_loop(volume.error, [&]() noexcept {
        if (state_ != State::running) {
            return volume.error.set(-ESHUTDOWN, "the session is closing, and its volumes with it");
        }
        if (volume.closing()) return volume.error.set(-EALREADY, "the volume is closing already");
        volume.close(done, context);
        return 0;
    });
}

}  // namespace rnbd::library
