// The requests of a RemoteVolume: they are sent, held while the server is away, and answered. Also
// what is reported when a server comes back without its cache.

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "rnbd/remote_session_inside.h"
#include "rnbd/remote_volume_inside.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/bytes.h"
#include "rtrs/base/planted.h"

namespace rnbd {
namespace {

Operation wire_operation(VolumeOperation operation) {
    switch (operation) {
        case VolumeOperation::read:
            return Operation::read;
        case VolumeOperation::write:
            return Operation::write;
        case VolumeOperation::flush:
            return Operation::flush;
        case VolumeOperation::discard:
            return Operation::discard;
        case VolumeOperation::write_zeroes:
            return Operation::write_zeroes;
        case VolumeOperation::extents:
            break;  // has a message of its own
    }
    return Operation::read;
}

IoFlag wire_flags(const VolumeIo& io) {
    IoFlag flags = IoFlag::none;
    // A flush has both flags, as with the kernel's client.
    if (io.operation == VolumeOperation::flush) flags = IoFlag::sync | IoFlag::fua;
    if (io.operation == VolumeOperation::read) flags = IoFlag::sync;
    if (io.force_unit_access) flags = flags | IoFlag::fua;
    if (io.operation == VolumeOperation::write_zeroes) {
        if (io.no_unmap) flags = flags | IoFlag::no_unmap;
        if (io.fast_only) flags = flags | IoFlag::fast_zero;
    }
    return flags;
}

// Longer than any single answer of the server.
constexpr std::size_t extents_answer_bytes = 4096;

bool moves_data(VolumeOperation operation) {
    return operation == VolumeOperation::read || operation == VolumeOperation::write;
}

// Servers count from 0, and answer that they do not know this one.
constexpr std::uint32_t no_device = 0xffffffff;
constexpr rtrs::Duration ask_again_delay = std::chrono::seconds(1);

}  // namespace

std::error_code RemoteVolume::Inside::check(const VolumeIo& io) const {
    const bool read_only = options.access == AccessMode::read_only;
    if (changes_content(io.operation) && read_only) return rtrs::from_errno(EROFS);
    if (io.operation == VolumeOperation::flush) return {};
    if (io.bytes == 0 || !whole_blocks(io.bytes | io.offset, geometry.logical_block_bytes)) {
        return rtrs::from_errno(EINVAL);
    }
    if (io.offset > geometry.size_bytes || io.bytes > geometry.size_bytes - io.offset) {
        return rtrs::from_errno(changes_content(io.operation) ? ENOSPC : EINVAL);
    }
    if (!is_able_to(io)) return rtrs::from_errno(EOPNOTSUPP);
    if (moves_data(io.operation) && io.bytes > session.session.max_io_bytes()) {
        return rtrs::from_errno(EINVAL);
    }
    return {};
}

// Operations for which this is false are not sent: a server that does not know an operation may do
// another one instead.
bool RemoteVolume::Inside::is_able_to(const VolumeIo& io) const noexcept {
    const std::uint64_t one_block = geometry.logical_block_bytes;
    switch (io.operation) {
        case VolumeOperation::read:
        case VolumeOperation::write:
        case VolumeOperation::flush:
            return true;
        case VolumeOperation::discard:
            return geometry.discard_bytes_max > 0;
        case VolumeOperation::write_zeroes:
            // The limit may have shrunk when the volume came back. Then the user writes zeroes as
            // data.
            if (io.bytes > std::max(geometry.write_zeroes_bytes_max, one_block)) return false;
            return geometry.write_zeroes_bytes_max > 0 && (!io.fast_only || geometry.fast_zero);
        case VolumeOperation::extents:
            return geometry.extents;
    }
    return false;
}

void RemoteVolume::Inside::submit(rtrs::Permit permit, const VolumeIo& io, std::uint64_t covers) {
    RTRS_ASSERT(io.responded != nullptr);
    const bool reads =
        io.operation == VolumeOperation::read || io.operation == VolumeOperation::extents;
    const bool reads_count = options.access != AccessMode::migration;
    knows_content |= changes_content(io.operation) || (reads_count && reads);
    knows_medium |= changes_content(io.operation) || reads;
    if (closing || state == VolumeState::closed) {
        return fail_later(std::move(permit), io, rtrs::Error::closed);
    }
    if (state == VolumeState::superseded) return fail_later(std::move(permit), io, open_error);
    if (state != VolumeState::open) {
        if (hold_time_over) return fail_later(std::move(permit), io, rtrs::Error::no_path);
        // The session does not know requests that wait here, but its refusal applies to them, too.
        const std::error_code refused = session.session.refuses_new();
        if (refused) return fail_later(std::move(permit), io, refused);
        waiting.push_back({std::move(permit), io, {}, covers, session.environment.clock.now()});
        return;
    }
    if (const auto error = check(io)) return fail_later(std::move(permit), io, error);
    if (io.operation == VolumeOperation::flush && !io.behind && unflushed.flushes_fail()) {
        return fail_later(std::move(permit), io, rtrs::from_errno(EIO), covers);
    }
    send(std::move(permit), io, covers);
}

void RemoteVolume::Inside::send(rtrs::Permit permit, const VolumeIo& io, std::uint64_t covers) {
    const Operation operation = wire_operation(io.operation);
    const bool flush = io.operation == VolumeOperation::flush;
    std::byte message[IoMessage::wire_bytes];
    rtrs::ClientRequest request{
        .direction = sent_as_read(operation) ? rtrs::Direction::read : rtrs::Direction::write,
        .message = message,
        .payload_bytes = moves_data(io.operation) ? io.bytes : 0,
        .responded =
            [](void* context, rtrs::Permit answered_permit, std::error_code error) {
                static_cast<Inside*>(context)->answered(std::move(answered_permit), error);
            },
        .context = this};
    if (io.operation == VolumeOperation::extents) {
        prepare_extents(permit, io, request, message);
    } else {
        IoMessage{.device_id = device_id,
                  .sector = flush ? 0 : io.offset / sector_bytes,
                  .operation = operation,
                  .flags = wire_flags(io),
                  .bytes = flush ? 0 : io.bytes}
            .emit(message);
    }
    IoRecord& record = session.record(permit.id());
    record.volume = this;
    record.io = io;
    record.device_id = device_id;
    record.covers = covers;
    record.lost = false;
    record.strayed = false;
    record.epoch = unflushed.epoch();
    ++in_flight;
    session.session.submit(std::move(permit), request);
}

// The buffer is cleared, so that after an answer without data its old content is not mistaken for
// the answer.
void RemoteVolume::Inside::prepare_extents(const rtrs::Permit& permit, const VolumeIo& io,
                                           rtrs::ClientRequest& request,
                                           rtrs::MutableBytes message) const {
    static_assert(ExtentsMessage::wire_bytes == IoMessage::wire_bytes);
    ExtentsMessage{.device_id = device_id, .offset = io.offset, .length = io.bytes}.emit(message);
    const rtrs::MutableBytes payload = permit.payload();
    const std::size_t answer_bytes = std::min(payload.size(), extents_answer_bytes);
    std::memset(payload.data(), 0, answer_bytes);
    request.payload_bytes = static_cast<std::uint32_t>(answer_bytes);
}

void RemoteVolume::Inside::answered(rtrs::Permit permit, std::error_code error) {
    IoRecord& record = session.record(permit.id());
    RTRS_ASSERT(record.volume == this);
    record.volume = nullptr;
    --in_flight;
    const IoRecord done = record;
    if (error && !session.session.settled(permit.id()))
        session.may_still_run(permit.id(), options.name);
    if (done.lost) {
        error = rtrs::from_errno(EIO);
        if (!done.io.behind) unflushed.told(done.covers);
    } else if (done.strayed || error == std::errc::not_connected) {
        if (!closing) return submit_again(std::move(permit), done);
        error = rtrs::Error::closed;
    } else if (!error && done_by_a_lost_cache(done)) {
        if (!closing) return submit(std::move(permit), done.io, done.covers);
        error = rtrs::Error::closed;
    } else if (!error) {
        succeeded(done);
    } else if (error == std::errc::no_such_device) {
        // Either the storage is gone; or it was gone, and the volume is no longer open at the
        // server; or the disk itself has returned ENODEV.
        if (state == VolumeState::open && !asking && !retry_timer.armed())
            retry_timer.arm(session.environment.clock.now() + ask_again_delay);
    }
    done.io.responded(done.io.context, std::move(permit), error);
    if (closing) close_if_idle();
}

// The server has forgotten the device (it was closed there): asks for it again, unless that was
// done since this request was sent.
void RemoteVolume::Inside::submit_again(rtrs::Permit permit, const IoRecord& record) {
    device_forgotten(record.device_id);
    submit(std::move(permit), record.io, record.covers);
}

// What is under way may be done to the other volume, whatever the answer will be: it is sent again
// when this one is open. Should its path be lost before, or was it not sent yet, it goes on with an
// id that no server knows.
void RemoteVolume::Inside::id_is_of_another(std::uint32_t id) {
    std::uint32_t strayed = 0;
    const std::uint32_t depth = session.session.queue_depth();
    for (std::uint32_t i = 0; i + 1 < depth && in_flight > 0; ++i) {
        IoRecord& record = session.records[i];
        if (record.volume != this || record.device_id != id) continue;
        const rtrs::PermitId permit{i};
        record.device_id = no_device;
        rtrs::store_le32(session.session.message(permit).data() + IoMessage::device_id_offset,
                         no_device);
        if (!session.session.held(permit) && !std::exchange(record.strayed, true)) ++strayed;
    }
    if (strayed > 0) {
        session.environment.tracer.trace(
            rtrs::TraceLevel::error, "rnbd.volume",
            session.session.options().name + "/" + options.name,
            "the server has closed the device and given its id to another volume: " +
                std::to_string(strayed) +
                " requests that were under way may have been done to that one; they are sent "
                "again");
    }
    if (!open_at_server || device_id != id) return;
    open_at_server = maybe_open_at_server = false;
    if (!closing) device_forgotten(id);
}

bool RemoteVolume::Inside::needs_flush(const VolumeIo& io) const noexcept {
    return changes_content(io.operation) && !(io.force_unit_access && geometry.force_unit_access);
}

// The answer came on another connection than the news of the new cache, and after it. The user does
// not know yet that the write was done, so it is done again, in the present cache. It is too late
// to acknowledge it and count it as lost: the next flush counts only losses from then on.
bool RemoteVolume::Inside::done_by_a_lost_cache(const IoRecord& record) const noexcept {
    return needs_flush(record.io) && unflushed.was_lost(record.epoch);
}

void RemoteVolume::Inside::succeeded(const IoRecord& record) {
    if (record.io.operation == VolumeOperation::flush) {
        unflushed.flushed(record.covers);
    } else if (needs_flush(record.io)) {
        unflushed.acknowledge();
    }
}

void RemoteVolume::Inside::fail_later(rtrs::Permit permit, const VolumeIo& io,
                                      std::error_code error, std::uint64_t covers) {
    failing.push_back({std::move(permit), io, error, covers, session.environment.clock.now()});
    failure_timer.arm(session.environment.clock.now());
}

void RemoteVolume::Inside::report_failures() {
    std::list<Waiting> now_failing;
    now_failing.swap(failing);
    for (Waiting& one : now_failing) {
        const bool tells = one.io.operation == VolumeOperation::flush && !one.io.behind &&
                           one.error == std::errc::io_error;
        if (tells) unflushed.told(one.covers);
        one.io.responded(one.io.context, std::move(one.permit), one.error);
    }
    if (closing) close_if_idle();
}

void RemoteVolume::Inside::fail_all_held(std::error_code error) {
    while (!waiting.empty()) {
        fail_later(std::move(waiting.front().permit), waiting.front().io, error);
        waiting.pop_front();
    }
    const std::uint32_t depth = session.session.queue_depth();
    for (std::uint32_t i = 0; i + 1 < depth && in_flight > 0; ++i) {
        if (session.records[i].volume == this && session.session.held(rtrs::PermitId{i})) {
            session.session.fail(rtrs::PermitId{i}, error);
        }
    }
}

void RemoteVolume::Inside::resume_held() {
    // These were sent before the link was lost; their messages have a device id that is not valid
    // any more.
    const std::uint32_t depth = session.session.queue_depth();
    for (std::uint32_t i = 0; i + 1 < depth && in_flight > 0; ++i) {
        const rtrs::PermitId id{i};
        if (session.records[i].volume != this || !session.session.held(id)) continue;
        if (!is_able_to(session.records[i].io)) {  // the server before was able to do it
            session.session.fail(id, rtrs::from_errno(EOPNOTSUPP));
            continue;
        }
        rtrs::store_le32(session.session.message(id).data() + IoMessage::device_id_offset,
                         device_id);
        session.records[i].device_id = device_id;
        session.records[i].strayed = false;
        // The server's session may have outlived the link and remember that a write was done, but
        // in a cache that was lost since.
        const std::uint64_t before = std::exchange(session.records[i].epoch, unflushed.epoch());
        using Attempts = rtrs::ClientSession::Attempts;
        session.session.resume(
            id, before == session.records[i].epoch ? Attempts::count : Attempts::again);
    }
    std::list<Waiting> ready;
    ready.swap(waiting);
    for (Waiting& one : ready) {
        if (one.error) {
            fail_later(std::move(one.permit), one.io, one.error, one.covers);
        } else {
            submit(std::move(one.permit), one.io, one.covers);
        }
    }
}

std::vector<VolumeRequestStatus> RemoteVolume::Inside::requests() const {
    using Stage = VolumeRequestStatus::Stage;
    std::vector<VolumeRequestStatus> all;
    const std::uint32_t depth = session.session.queue_depth();
    for (std::uint32_t i = 0; i + 1 < depth && all.size() < in_flight; ++i) {
        const IoRecord& record = session.records[i];
        if (record.volume != this) continue;
        all.push_back({Stage::session,
                       rtrs::PermitId{i},
                       record.io.operation,
                       record.io.offset,
                       record.io.bytes,
                       {}});
    }
    for (const Waiting& one : waiting) {
        all.push_back({Stage::waiting, one.permit.id(), one.io.operation, one.io.offset,
                       one.io.bytes, one.since});
    }
    return all;
}

// --- What the server may lose.

void RemoteVolume::Inside::trace_loss(const std::string& what) {
    session.environment.tracer.trace(rtrs::TraceLevel::error, "rnbd.volume",
                                     session.session.options().name + "/" + options.name,
                                     what + "; a flush fails to say so");
}

void RemoteVolume::Inside::note_epoch(std::uint64_t now) {
    const auto loss = unflushed.note_epoch(now);
    if (!loss) return;
    if (const auto times = traced_losses.happened(session.environment.clock.now())) {
        trace_loss("the server came back without its cache: up to " + std::to_string(loss->writes) +
                   " acknowledged writes are lost that were not flushed" +
                   (loss->of_former_life ? ", one of them for all of a former life" : "") +
                   rtrs::how_often(*times));
    }
    fail_lost_flushes(loss->flushed);
}

void RemoteVolume::Inside::lost_in_part() {
    if (rtrs::planted(rtrs::PlantedBug::flush_forgotten)) return;
    unflushed.lost_in_part();
    trace_loss("a part of a write was acknowledged by a cache that the server has lost since");
}

void RemoteVolume::Inside::loss_of_former_life() {
    if (rtrs::planted(rtrs::PlantedBug::flush_forgotten)) return;
    unflushed.lost_in_former_life();
    trace_loss(
        "acknowledged writes of a former life were lost, and not all who use it have heard of "
        "that");
}

// Marks the flushes that were submitted before the cache was lost.
void RemoteVolume::Inside::fail_lost_flushes(std::uint64_t flushed) {
    const auto covers_lost = [&](const VolumeIo& io, std::uint64_t covers) {
        return io.operation == VolumeOperation::flush && covers > flushed;
    };
    const std::uint32_t depth = session.session.queue_depth();
    for (std::uint32_t i = 0; i + 1 < depth && in_flight > 0; ++i) {
        IoRecord& record = session.records[i];
        if (record.volume == this && covers_lost(record.io, record.covers)) record.lost = true;
    }
    for (Waiting& one : waiting) {
        if (covers_lost(one.io, one.covers)) one.error = rtrs::from_errno(EIO);
    }
}

// --- Extents.

std::expected<std::vector<ExtentDescriptor>, std::error_code> RemoteVolume::extents_in(
    const rtrs::Permit& permit) const {
    const rtrs::MutableBytes payload = permit.payload();
    const auto view =
        ExtentsResponseView::parse(payload.first(std::min(payload.size(), extents_answer_bytes)));
    if (!view || view->count() == 0) {
        return std::unexpected(rtrs::make_error_code(rtrs::Error::protocol));
    }
    std::vector<ExtentDescriptor> extents;
    extents.reserve(view->count());
    for (std::size_t i = 0; i < view->count(); ++i) {
        const ExtentDescriptor extent = view->extent(i);
        // Who reads and writes whole blocks can do nothing with a part of one; NBD forbids it.
        if (!whole_blocks(extent.length, inside_->geometry.logical_block_bytes)) {
            return std::unexpected(rtrs::make_error_code(rtrs::Error::protocol));
        }
        extents.push_back(extent);
    }
    return extents;
}

}  // namespace rnbd
