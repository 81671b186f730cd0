// Reactor: the ring work. Each call prepares one entry, on the ring's own thread or through its
// mailbox.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "rtrs/base/assert.h"
#include "rtrs/reactor/reactor_inside.h"

namespace rtrs {
namespace {

// Of Linux 6.2 (linux/io_uring.h); older headers do not have it.
constexpr std::uint16_t send_zc_report_usage = 1u << 3;

}  // namespace

void Reactor::Inside::cancel(Operation& operation) noexcept {
    io_uring_sqe* entry = prepare_unanswered();
    io_uring_prep_cancel(entry, &operation, 0);
    entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
}

// In its place among what was handed over: what it cancels is prepared by then.
void Reactor::Inside::cancel_later(Operation& operation) {
    const std::uint64_t asked = ++cancellations_asked;
    to_cancel.push_back({asked, &operation});
    mailbox.post([this, asked] { cancel_as_asked(asked); });
}

void Reactor::Inside::cancel_as_asked(std::uint64_t asked) noexcept {
    // Those before it were looked at, or have completed, as this one may have.
    if (to_cancel.empty() || to_cancel.front().asked != asked) return;
    cancel(*to_cancel.front().operation);
    to_cancel.pop_front();
}

bool Reactor::Inside::called(Operation& operation, int fd, const msghdr* message,
                             int flags) noexcept {
    RTRS_ASSERT(!operation.in_flight);
    if (!may_call_send()) return false;
    const ssize_t sent = ::sendmsg(fd, message, MSG_DONTWAIT | MSG_NOSIGNAL | flags);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    may_call = false;
    ++statistics.calls;
    operation.in_flight = true;
    operation.of_storage = false;
    operation.large_receive = false;
    ++outstanding;
    RTRS_ASSERT(called_now == nullptr);
    called_now = &operation;
    // An error too: the socket tells it once.
    call_result = static_cast<std::int32_t>(sent < 0 ? -errno : sent);
    return true;
}

void Reactor::accept(Operation& operation, int fd) {
    inside_->begin(operation, [=](io_uring_sqe* entry) {
        io_uring_prep_accept(entry, fd, nullptr, nullptr, SOCK_CLOEXEC);
    });
}

void Reactor::connect(Operation& operation, int fd, const sockaddr* address, socklen_t bytes) {
    inside_->begin(operation,
                   [=](io_uring_sqe* entry) { io_uring_prep_connect(entry, fd, address, bytes); });
}

void Reactor::recv_provided(Operation& operation, int fd, std::uint32_t max_bytes,
                            FirstTry first_try) {
    inside_->begin(operation, [=](io_uring_sqe* entry) {
        io_uring_prep_recv(entry, fd, nullptr, max_bytes, 0);
        if (first_try == FirstTry::after_poll) entry->ioprio |= IORING_RECVSEND_POLL_FIRST;
        entry->buf_group = ReceiveBuffers::group;
        entry->flags |= IOSQE_BUFFER_SELECT;
    });
}

void Reactor::recv_multishot(Operation& operation, int fd) {
    inside_->begin(operation, [=](io_uring_sqe* entry) {
        io_uring_prep_recv_multishot(entry, fd, nullptr, 0, 0);
        entry->ioprio |= IORING_RECVSEND_POLL_FIRST;
        entry->buf_group = ReceiveBuffers::group;
        entry->flags |= IOSQE_BUFFER_SELECT;
    });
}

MutableBytes Reactor::received(std::uint16_t buffer, std::uint32_t bytes) noexcept {
    return inside_->receive_buffers.memory(buffer, bytes);
}

void Reactor::return_buffer(std::uint16_t buffer) noexcept {
    inside_->receive_buffers.give_back(buffer);
}

void Reactor::recv_all(Operation& operation, int fd, MutableBytes target) {
    constexpr std::size_t large = 16u << 10;
    inside_->begin(operation,
                   [inside = inside_.get(), &operation, fd, target](io_uring_sqe* entry) {
                       if (target.size() >= large) {
                           operation.large_receive = true;
                           inside->large_receive_at = inside->now;
                       }
                       io_uring_prep_recv(entry, fd, target.data(), target.size(), MSG_WAITALL);
                   });
}

void Reactor::sendmsg(Operation& operation, int fd, const msghdr* message, SendBy by, int flags) {
    if (by == SendBy::call && inside_->called(operation, fd, message, flags)) return;
    inside_->begin(operation, [=](io_uring_sqe* entry) {
        io_uring_prep_sendmsg(entry, fd, message,
                              static_cast<unsigned>(MSG_WAITALL | MSG_NOSIGNAL | flags));
    });
}

void Reactor::sendmsg_zero_copy(Operation& operation, int fd, const msghdr* message) {
    inside_->begin(operation, [inside = inside_.get(), fd, message](io_uring_sqe* entry) {
        ++inside->statistics.zero_copies;
        io_uring_prep_sendmsg_zc(entry, fd, message, MSG_WAITALL | MSG_NOSIGNAL);
        entry->ioprio |= send_zc_report_usage;
    });
}

bool Reactor::may_call_send() const noexcept { return inside_->may_call_send(); }

bool Reactor::serves_several_streams() const noexcept { return inside_->several_heard > 0; }

void Reactor::read(Operation& operation, File file, MutableBytes target, std::uint64_t offset,
                   FixedBuffer buffer) {
    inside_->begin_on_storage(operation, [=](io_uring_sqe* entry) {
        const int fd = file.slot == FixedFile::none ? file.fd : static_cast<int>(file.slot);
        const auto bytes = static_cast<unsigned>(target.size());
        if (buffer == FixedBuffer::none) {
            io_uring_prep_read(entry, fd, target.data(), bytes, offset);
        } else {
            io_uring_prep_read_fixed(entry, fd, target.data(), bytes, offset,
                                     static_cast<int>(buffer));
        }
        if (file.slot != FixedFile::none) entry->flags |= IOSQE_FIXED_FILE;
        if (file.begins_slowly) entry->flags |= IOSQE_ASYNC;
    });
}

void Reactor::write(Operation& operation, File file, Bytes source, std::uint64_t offset, int flags,
                    FixedBuffer buffer) {
    inside_->begin_on_storage(operation, [=](io_uring_sqe* entry) {
        const int fd = file.slot == FixedFile::none ? file.fd : static_cast<int>(file.slot);
        const auto bytes = static_cast<unsigned>(source.size());
        if (buffer == FixedBuffer::none) {
            io_uring_prep_write(entry, fd, source.data(), bytes, offset);
        } else {
            io_uring_prep_write_fixed(entry, fd, source.data(), bytes, offset,
                                      static_cast<int>(buffer));
        }
        entry->rw_flags = flags;
        if (file.slot != FixedFile::none) entry->flags |= IOSQE_FIXED_FILE;
        if (file.begins_slowly) entry->flags |= IOSQE_ASYNC;
    });
}

void Reactor::submit_early(std::uint32_t entries_min) noexcept {
    if (!inside_->may_begin_storage()) return;
    if (inside_->polled.prepared() >= entries_min && entries_min > 0) {
        ++inside_->statistics.early_submits;
        inside_->polled.look();
    }
    if (inside_->ring.prepared() < entries_min) return;
    ++inside_->statistics.early_submits;
    inside_->ring.submit();
}

std::optional<std::int32_t> Reactor::read_now(int fd, MutableBytes target,
                                              std::uint64_t offset) noexcept {
    if (!inside_->may_begin_storage()) return std::nullopt;
    ++inside_->statistics.early_reads;
    const ssize_t got = ::pread(fd, target.data(), target.size(), static_cast<off_t>(offset));
    return static_cast<std::int32_t>(got < 0 ? -errno : got);
}

std::optional<std::int32_t> Reactor::write_now(int fd, Bytes source, std::uint64_t offset,
                                               int flags) noexcept {
    if (!inside_->may_begin_storage()) return std::nullopt;
    ++inside_->statistics.early_writes;
    const iovec all{const_cast<std::byte*>(source.data()), source.size()};
    const ssize_t written = ::pwritev2(fd, &all, 1, static_cast<off_t>(offset), flags);
    return static_cast<std::int32_t>(written < 0 ? -errno : written);
}

void Reactor::read_polled(Operation& operation, int fd, MutableBytes target, std::uint64_t offset) {
    io_uring_prep_read(inside_->prepare_polled(operation), fd, target.data(),
                       static_cast<unsigned>(target.size()), offset);
}

void Reactor::write_polled(Operation& operation, int fd, Bytes source, std::uint64_t offset) {
    io_uring_prep_write(inside_->prepare_polled(operation), fd, source.data(),
                        static_cast<unsigned>(source.size()), offset);
}

void Reactor::expect_slow_files() {
    inside_->on_its_thread([inside = inside_.get()] { inside->ring.let_workers_be_many(); });
}

void Reactor::fdatasync(Operation& operation, int fd) {
    inside_->begin_on_storage(operation, [=](io_uring_sqe* entry) {
        io_uring_prep_fsync(entry, fd, IORING_FSYNC_DATASYNC);
    });
}

void Reactor::fallocate(Operation& operation, int fd, int mode, std::uint64_t offset,
                        std::uint64_t bytes) {
    inside_->begin_on_storage(operation, [=](io_uring_sqe* entry) {
        io_uring_prep_fallocate(entry, fd, mode, static_cast<off_t>(offset),
                                static_cast<off_t>(bytes));
    });
}

void Reactor::write_back(Operation& operation, int fd, std::uint64_t offset, std::uint64_t bytes) {
    // What an entry has no room for is all there is from the offset on.
    const bool fits = bytes <= std::numeric_limits<std::uint32_t>::max();
    const auto length = fits ? static_cast<std::uint32_t>(bytes) : 0;
    inside_->begin_on_storage(operation, [=](io_uring_sqe* entry) {
        io_uring_prep_sync_file_range(
            entry, fd, length, offset,
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    });
}

void Reactor::poll_readable(Operation& operation, int fd) {
    inside_->begin(operation,
                   [=](io_uring_sqe* entry) { io_uring_prep_poll_add(entry, fd, POLLIN); });
}

void Reactor::poll_writable(Operation& operation, int fd) {
    inside_->begin(operation,
                   [=](io_uring_sqe* entry) { io_uring_prep_poll_add(entry, fd, POLLOUT); });
}

void Reactor::cancel(Operation& operation) {
    if (!operation.in_flight) return;
    // What it cancels may still be in the mailbox.
    if (!inside_->elsewhere() && inside_->handed_over == 0) return inside_->cancel(operation);
    inside_->cancel_later(operation);
}

void Reactor::close_fd(int fd) noexcept {
    inside_->begin_unanswered([fd](io_uring_sqe* entry) {
        io_uring_prep_close(entry, fd);
        entry->flags |= IOSQE_CQE_SKIP_SUCCESS;
    });
}

std::expected<Reactor::FixedBuffer, std::error_code> Reactor::register_buffer(MutableBytes memory) {
    RTRS_ASSERT(!inside_->elsewhere());
    const std::expected<std::uint32_t, std::error_code> slot =
        inside_->fixed_buffers.add({memory.data(), memory.size()});
    if (!slot) return std::unexpected(slot.error());
    return static_cast<FixedBuffer>(*slot);
}

void Reactor::unregister_buffer(FixedBuffer buffer) noexcept {
    RTRS_ASSERT(buffer != FixedBuffer::none);
    inside_->unregister([inside = inside_.get(), buffer] {
        inside->fixed_buffers.remove(static_cast<std::uint32_t>(buffer));
    });
}

std::expected<Reactor::FixedFile, std::error_code> Reactor::register_file(int fd) {
    RTRS_ASSERT(!inside_->elsewhere());
    const std::expected<std::uint32_t, std::error_code> slot = inside_->fixed_files.add(fd);
    if (!slot) return std::unexpected(slot.error());
    return static_cast<FixedFile>(*slot);
}

void Reactor::unregister_file(FixedFile file) noexcept {
    RTRS_ASSERT(file != FixedFile::none);
    inside_->unregister([inside = inside_.get(), file] {
        inside->fixed_files.remove(static_cast<std::uint32_t>(file));
    });
}

}  // namespace rtrs
