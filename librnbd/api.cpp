// The C functions: arguments are checked, exceptions end here. Out of memory in the middle of a
// turn, or while a path, volume or session comes or goes, there is no way back to where it began,
// and the process ends.
#include <cerrno>
#include <memory>
#include <new>
#include <vector>

#include "librnbd/librnbd.h"
#include "librnbd/session.h"
#include "librnbd/uncancelled.h"

namespace {

using rnbd::ExtentDescriptor;
using rnbd::VolumeOperation;
using rnbd::library::Buffer;
using rnbd::library::ExtentsQuestion;
using rnbd::library::Request;
using rnbd::library::Session;
using rnbd::library::Uncancelled;
using rnbd::library::Volume;

// Handles of the C side are our objects by another name.
Session& inside(rnbd_session* session) { return *reinterpret_cast<Session*>(session); }
Volume& inside(rnbd_volume* volume) { return *reinterpret_cast<Volume*>(volume); }
Buffer& inside(rnbd_buffer* buffer) { return *reinterpret_cast<Buffer*>(buffer); }

// Every error has a text but that of a handle that is not there.
template <typename Call>
int guarded(rnbd::library::ErrorText& error, Call call) noexcept {
    try {
        return call();
    } catch (const std::bad_alloc&) {
        return error.set_no_memory();
    }
}

// For what waits, or makes system calls. Requests do neither, but for Session::queue().
template <typename Call>
int guarded_uncancelled(rnbd::library::ErrorText& error, Call call) noexcept {
    const Uncancelled here;
    return guarded(error, call);
}

const char* words_of(const rnbd::library::ErrorText& error) noexcept {
    try {
        return error.get();
    } catch (const std::bad_alloc&) {
        return "there is no memory for the text";
    }
}

template <typename Fill>
int submit(rnbd_volume* volume, rnbd_done_fn done, void* context, Fill fill) noexcept {
    if (volume == nullptr) return -EINVAL;
    Volume& inner = inside(volume);
    return guarded(inner.error, [&] {
        if (done == nullptr) return inner.error.set(-EINVAL, "done: it is NULL");
        return inner.session().submit(inner, [&](Request& request) {
            request.done = done;
            request.context = context;
            fill(request);
        });
    });
}

struct Range {
    std::uint64_t offset;
    std::uint64_t bytes;
    unsigned flags;
};

void describe(Request& request, VolumeOperation operation, const Range& range) {
    request.operation = operation;
    request.offset = range.offset;
    request.bytes = range.bytes;
    request.flags = range.flags;
}

int submit_vector(VolumeOperation operation, rnbd_volume* volume, const iovec* iov, int iov_count,
                  std::uint64_t offset, unsigned flags, rnbd_done_fn done, void* context) noexcept {
    if (volume == nullptr) return -EINVAL;
    const auto wrong = [volume](const char* why) {
        return guarded(inside(volume).error,
                       [&] { return inside(volume).error.set(-EINVAL, why); });
    };
    if (iov == nullptr || iov_count < 1) return wrong("iov: expected one entry or more");
    std::uint64_t bytes = 0;
    for (int i = 0; i < iov_count; ++i) {
        if (iov[i].iov_base == nullptr && iov[i].iov_len > 0) {
            return wrong("iov: an entry has no address");
        }
        if (__builtin_add_overflow(bytes, iov[i].iov_len, &bytes)) {
            return wrong("iov: it is longer than any memory");
        }
    }
    return submit(volume, done, context, [&](Request& request) {
        describe(request, operation, {offset, bytes, flags});
        request.iov.assign(iov, iov + iov_count);
    });
}

int submit_buffer(VolumeOperation operation, rnbd_volume* volume, rnbd_buffer* buffer,
                  const Range& range, rnbd_done_fn done, void* context) noexcept {
    if (volume == nullptr) return -EINVAL;
    if (buffer == nullptr) {
        return guarded(inside(volume).error,
                       [&] { return inside(volume).error.set(-EINVAL, "buffer: it is NULL"); });
    }
    return submit(volume, done, context, [&](Request& request) {
        describe(request, operation, range);
        request.buffer = &inside(buffer);
    });
}

void extents_known(void* context, int error) {
    const std::unique_ptr<ExtentsQuestion> question(static_cast<ExtentsQuestion*>(context));
    std::vector<rnbd_extent> told;
    told.reserve(question->found.size());
    for (const ExtentDescriptor& one : question->found) {
        told.push_back({one.length, static_cast<std::uint32_t>(one.flags), 0});
    }
    question->known(question->context, error, told.data(), told.size());
}

}  // namespace

const char* rnbd_version(void) { return RNBD_VERSION; }

// --- Sessions.

int rnbd_session_new(rnbd_session** session) {
    if (session == nullptr) return -EINVAL;
    try {
        *session = reinterpret_cast<rnbd_session*>(new Session);
        return 0;
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

int rnbd_session_set(rnbd_session* session, const char* key, const char* value) {
    if (session == nullptr) return -EINVAL;
    return guarded(inside(session).error, [&] {
        if (key == nullptr || value == nullptr) {
            return inside(session).error.set(-EINVAL, "a key or a value is NULL");
        }
        return inside(session).set(key, value);
    });
}

int rnbd_session_on_event(rnbd_session* session, rnbd_event_fn event, void* context) {
    if (session == nullptr) return -EINVAL;
    return guarded(inside(session).error, [&] { return inside(session).on_event(event, context); });
}

int rnbd_session_on_turn(rnbd_session* session, rnbd_turn_fn turn, void* context) {
    if (session == nullptr) return -EINVAL;
    return guarded(inside(session).error, [&] { return inside(session).on_turn(turn, context); });
}

int rnbd_session_add_path(rnbd_session* session, const char* path) {
    if (session == nullptr) return -EINVAL;
    return guarded_uncancelled(inside(session).error, [&] {
        if (path == nullptr) return inside(session).error.set(-EINVAL, "path: it is NULL");
        return inside(session).add_path(path);
    });
}

int rnbd_session_remove_path(rnbd_session* session, const char* path) {
    if (session == nullptr) return -EINVAL;
    return guarded_uncancelled(inside(session).error, [&] {
        if (path == nullptr) return inside(session).error.set(-EINVAL, "path: it is NULL");
        return inside(session).remove_path(path);
    });
}

int rnbd_session_start(rnbd_session* session) {
    if (session == nullptr) return -EINVAL;
    return guarded_uncancelled(inside(session).error, [&] { return inside(session).start(); });
}

int rnbd_session_fd(rnbd_session* session) {
    if (session == nullptr) return -EINVAL;
    return guarded(inside(session).error, [&] { return inside(session).fd(); });
}

int rnbd_session_process(rnbd_session* session, int timeout_ms) {
    if (session == nullptr) return -EINVAL;
    const Uncancelled here;
    return [&]() noexcept { return inside(session).process(timeout_ms); }();
}

int rnbd_session_close(rnbd_session* session, rnbd_done_fn done, void* context) {
    if (session == nullptr) return -EINVAL;
    return guarded_uncancelled(inside(session).error,
                               [&] { return inside(session).close(done, context); });
}

int rnbd_session_free(rnbd_session* session) {
    if (session == nullptr) return 0;
    const Uncancelled here;
    const int failed = guarded(inside(session).error, [&] { return inside(session).take_down(); });
    if (failed != 0) return failed;
    delete &inside(session);
    return 0;
}

const char* rnbd_session_error(rnbd_session* session) {
    return session == nullptr ? "the session is NULL" : words_of(inside(session).error);
}

// --- Volumes.

int rnbd_volume_open(rnbd_session* session, const char* name, unsigned flags,
                     rnbd_volume** volume) {
    if (volume != nullptr) *volume = nullptr;
    if (session == nullptr) return -EINVAL;
    return guarded_uncancelled(inside(session).error, [&] {
        if (name == nullptr || volume == nullptr) {
            return inside(session).error.set(-EINVAL, "name or volume: it is NULL");
        }
        Volume* opened = nullptr;
        const int failed = inside(session).open_volume(name, flags, opened);
        if (failed == 0) *volume = reinterpret_cast<rnbd_volume*>(opened);
        return failed;
    });
}

int rnbd_volume_wait(rnbd_volume* volume, int timeout_ms) {
    if (volume == nullptr) return -EINVAL;
    Volume& inner = inside(volume);
    return guarded_uncancelled(inner.error,
                               [&] { return inner.session().wait_volume(inner, timeout_ms); });
}

int rnbd_volume_close(rnbd_volume* volume, rnbd_done_fn done, void* context) {
    if (volume == nullptr) return -EINVAL;
    Volume& inner = inside(volume);
    return guarded_uncancelled(inner.error,
                               [&] { return inner.session().close_volume(inner, done, context); });
}

const char* rnbd_volume_error(rnbd_volume* volume) {
    return volume == nullptr ? "the volume is NULL" : words_of(inside(volume).error);
}

int rnbd_volume_get_info(rnbd_volume* volume, rnbd_volume_info* info, size_t info_bytes) {
    if (volume == nullptr) return -EINVAL;
    Volume& inner = inside(volume);
    return guarded(inner.error, [&] {
        if (info == nullptr) return inner.error.set(-EINVAL, "info: it is NULL");
        return inner.session().get_info(inner, *info, info_bytes);
    });
}

// --- Requests.

int rnbd_readv(rnbd_volume* volume, const struct iovec* iov, int iov_count, uint64_t offset,
               unsigned flags, rnbd_done_fn done, void* context) {
    return submit_vector(VolumeOperation::read, volume, iov, iov_count, offset, flags, done,
                         context);
}

int rnbd_writev(rnbd_volume* volume, const struct iovec* iov, int iov_count, uint64_t offset,
                unsigned flags, rnbd_done_fn done, void* context) {
    return submit_vector(VolumeOperation::write, volume, iov, iov_count, offset, flags, done,
                         context);
}

int rnbd_flush(rnbd_volume* volume, rnbd_done_fn done, void* context) {
    return submit(volume, done, context,
                  [](Request& request) { describe(request, VolumeOperation::flush, {}); });
}

int rnbd_discard(rnbd_volume* volume, uint64_t offset, uint64_t bytes, unsigned flags,
                 rnbd_done_fn done, void* context) {
    return submit(volume, done, context, [=](Request& request) {
        describe(request, VolumeOperation::discard, {offset, bytes, flags});
    });
}

int rnbd_write_zeroes(rnbd_volume* volume, uint64_t offset, uint64_t bytes, unsigned flags,
                      rnbd_done_fn done, void* context) {
    return submit(volume, done, context, [=](Request& request) {
        describe(request, VolumeOperation::write_zeroes, {offset, bytes, flags});
    });
}

int rnbd_get_extents(rnbd_volume* volume, uint64_t offset, uint64_t bytes, rnbd_extents_fn known,
                     void* context) {
    if (volume == nullptr) return -EINVAL;
    Volume& inner = inside(volume);
    return guarded(inner.error, [&] {
        if (known == nullptr) return inner.error.set(-EINVAL, "known: it is NULL");
        auto question = std::make_unique<ExtentsQuestion>(known, context);
        const int failed = submit(volume, &extents_known, question.get(), [&](Request& request) {
            describe(request, VolumeOperation::extents, {offset, bytes, 0});
        });
        if (failed == 0) static_cast<void>(question.release());
        return failed;
    });
}

// --- Buffers.

int rnbd_buffer_get(rnbd_session* session, rnbd_buffer** buffer) {
    if (buffer != nullptr) *buffer = nullptr;
    if (session == nullptr) return -EINVAL;
    return guarded_uncancelled(inside(session).error, [&] {
        if (buffer == nullptr) return inside(session).error.set(-EINVAL, "buffer: it is NULL");
        Buffer* got = nullptr;
        const int failed = inside(session).get_buffer(got);
        if (failed == 0) *buffer = reinterpret_cast<rnbd_buffer*>(got);
        return failed;
    });
}

void* rnbd_buffer_data(rnbd_buffer* buffer) {
    return buffer == nullptr ? nullptr : inside(buffer).memory.data();
}

size_t rnbd_buffer_size(rnbd_buffer* buffer) {
    return buffer == nullptr ? 0 : inside(buffer).memory.size();
}

int rnbd_buffer_put(rnbd_buffer* buffer) {
    if (buffer == nullptr) return 0;
    return guarded_uncancelled(inside(buffer).session->error,
                               [&] { return inside(buffer).session->put_buffer(inside(buffer)); });
}

int rnbd_read_buffer(rnbd_volume* volume, rnbd_buffer* buffer, size_t bytes, uint64_t offset,
                     unsigned flags, rnbd_done_fn done, void* context) {
    return submit_buffer(VolumeOperation::read, volume, buffer, {offset, bytes, flags}, done,
                         context);
}

int rnbd_write_buffer(rnbd_volume* volume, rnbd_buffer* buffer, size_t bytes, uint64_t offset,
                      unsigned flags, rnbd_done_fn done, void* context) {
    return submit_buffer(VolumeOperation::write, volume, buffer, {offset, bytes, flags}, done,
                         context);
}
