#include "librnbd/requests.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "librnbd/volume.h"
#include "rnbd/fair_share.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"

namespace rnbd::library {
namespace {

bool carries_data(const Request& request) noexcept {
    return request.operation == VolumeOperation::read ||
           request.operation == VolumeOperation::write;
}

// Calls part(memory, at) for the pieces of memory that hold bytes [from, from + bytes).
template <typename Part>
void visit(const std::vector<iovec>& iov, std::uint64_t from, std::size_t bytes, Part part) {
    std::size_t done = 0;
    for (const iovec& one : iov) {
        if (from >= one.iov_len) {
            from -= one.iov_len;
            continue;
        }
        const std::size_t here = std::min<std::size_t>(one.iov_len - from, bytes - done);
        part(static_cast<std::byte*>(one.iov_base) + from, done, here);
        done += here;
        from = 0;
        if (done == bytes) return;
    }
    RTRS_ASSERT(done == bytes);
}

}  // namespace

// --- The pool.

RequestPool::~RequestPool() {
    while (!free_.empty()) free_.pop_front();
}

Request& RequestPool::take() {
    if (free_.empty()) {
        slabs_.push_back(std::make_unique<Request[]>(slab));
        for (std::size_t i = 0; i < slab; ++i) free_.push_front(slabs_.back()[i]);
    }
    return free_.pop_front();
}

// --- Starting.

Requests::Requests(rtrs::Reactor& reactor, rtrs::ClientSession& permits, rtrs::Duration busy_poll,
                   Finished finished, void* context)
    : reactor_(reactor),
      permits_(permits),
      finished_(finished),
      context_(context),
      reporter_(reactor, this, rtrs::member_call<&Requests::report_failures>) {
    waiter_.count = 1;
    waiter_.permits = {&granted_, 1};
    reactor_.set_busy_poll(busy_poll, {.min = 1});
}

Requests::~Requests() { reactor_.set_busy_poll(rtrs::Duration::zero()); }

void Requests::set_depth(std::uint32_t queue_depth) {
    if (pieces_) return;
    pieces_ = rtrs::LazyArray<Piece>(queue_depth);
    RTRS_ASSERT(pieces_);
}

bool Requests::more(const Request& request) noexcept {
    if (request.error) return false;
    if (request.stage == Request::Stage::data) return request.started < request.bytes;
    return request.stage == Request::Stage::flush_due;
}

bool Requests::wants_permit(const Request& request) noexcept {
    return more(request) && (carries_data(request) || request.in_flight < dataless_pieces_max);
}

void Requests::start(Request& request) {
    if (request.buffer != nullptr) return send_piece(request, std::move(request.buffer->permit));
    if (const std::error_code refused = permits_.refuses_new()) return refuse(request, refused);
    PermitShare& share = request.volume->share;
    while (wants_permit(request) && share.waiting.empty() && has_room(share)) {
        std::optional<rtrs::Permit> permit = permits_.try_take();
        if (!permit) break;
        take(request, std::move(*permit));
    }
    if (!wants_permit(request)) return;
    share.waiting.push_back(request);
    if (!share.linked()) waiting_.push_back(share);
    dispatch({});
}

// As the volume would with a permit. Those that joined in time go on waiting.
void Requests::refuse(Request& request, std::error_code why) {
    const RemoteVolume& volume = request.volume->remote();
    const bool for_ever = volume.state() == VolumeState::superseded;
    fail_later(request, for_ever ? volume.open_error() : why);
}

void Requests::take(Request& request, rtrs::Permit permit) {
    ++held_;
    if (request.volume->share.held++ == 0) ++holders_;
    send_piece(request, std::move(permit));
}

void Requests::give_back(Request& request, rtrs::Permit permit) {
    --held_;
    if (--request.volume->share.held == 0) --holders_;
    dispatch(std::move(permit));
}

bool Requests::has_room(const PermitShare& share) const noexcept {
    if (volumes_ < 2 || share.held == 0) return true;
    const std::uint32_t others = held_ - share.held;
    const std::uint32_t all = permits_.permits_max() - buffers_;
    return share.held < fair_share(all, others, volumes_);
}

PermitShare* Requests::next_with_room() noexcept {
    if (waiting_.empty()) return nullptr;
    if (has_room(waiting_.front())) return &waiting_.front();
    PermitShare* found = nullptr;
    waiting_.for_each([&](PermitShare& share) {
        if (found == nullptr && has_room(share)) found = &share;
    });
    return found;
}

// Gives permits to those that may have them, this one first. What nobody may have goes home.
void Requests::dispatch(std::optional<rtrs::Permit> permit) {
    while (PermitShare* const share = next_with_room()) {
        if (!permit) permit = permits_.try_take();
        if (!permit) {
            if (waiter_.linked() || !permits_.take_or_wait(waiter_)) return;
            permit = std::move(granted_);
        }
        Request& first = share->waiting.front();
        take(first, std::move(*permit));
        permit.reset();
        // The others' turn.
        rtrs::IntrusiveList<PermitShare>::remove(*share);
        waiting_.push_back(*share);
        if (!wants_permit(first)) no_longer_waits(first);
    }
    stop_waiting();
}

void Requests::no_longer_waits(Request& request) noexcept {
    PermitShare& share = request.volume->share;
    rtrs::IntrusiveList<Request>::remove(request);
    if (share.linked() && share.waiting.empty()) rtrs::IntrusiveList<PermitShare>::remove(share);
}

void Requests::stop_waiting() noexcept {
    if (waiter_.linked()) permits_.stop_waiting(waiter_);
}

void Requests::left(const PermitShare& share) {
    RTRS_ASSERT(share.held == 0 && share.waiting.empty());
    --volumes_;
    dispatch({});
}

bool Requests::has_room_for_buffer() const noexcept {
    const std::uint32_t all = permits_.permits_max();
    const std::uint32_t kept =
        std::max(std::min(volumes_ - holders_, all / 2), holders_ > 0 ? 0u : 1u);
    return held_ + buffers_ + kept < all;
}

void Requests::set_buffers(std::uint32_t count) {
    buffers_ = count;
    dispatch({});
}

std::uint32_t Requests::piece_bytes(const Request& request) const noexcept {
    const std::uint64_t most = piece_bytes_max(
        request.operation, request.volume->remote().geometry(), permits_.max_io_bytes());
    return static_cast<std::uint32_t>(std::min(most, request.bytes - request.started));
}

// The data that the piece writes.
void Requests::fill(const Request& request, const Piece& piece, rtrs::MutableBytes payload) {
    if (request.operation == VolumeOperation::write_zeroes) {
        std::memset(payload.data(), 0, piece.bytes);
    } else if (request.buffer == nullptr) {
        visit(request.iov, piece.at, piece.bytes,
              [&](const std::byte* memory, std::size_t at, std::size_t bytes) {
                  std::memcpy(payload.data() + at, memory, bytes);
              });
    }
}

void Requests::send_piece(Request& request, rtrs::Permit permit) {
    Piece& piece = pieces_[static_cast<std::uint32_t>(permit.id())];
    piece.owner = this;
    piece.request = &request;
    VolumeIo io;
    if (request.stage == Request::Stage::flush_due) {
        request.stage = Request::Stage::flushing;
        io = request.whole.flush();
    } else {
        io = request.whole.piece(request.volume->remote().geometry());
        piece.at = request.started;
        piece.bytes = piece_bytes(request);
        io.offset = request.offset + piece.at;
        io.bytes = piece.bytes;
        request.started += piece.bytes;
        // One answer; what it does not cover the program asks for anew.
        if (request.operation == VolumeOperation::extents) request.started = request.bytes;
        if (io.operation == VolumeOperation::write) fill(request, piece, permit.payload());
    }
    piece.zeroes_due = 0;
    send(request, piece, std::move(permit), io);
}

// What the volume was asked to do itself, and does not, in as many writes as it takes.
void Requests::write_zeroes(Piece& piece, rtrs::Permit permit, std::uint64_t at,
                            std::uint32_t bytes) {
    Request& request = *piece.request;
    const std::uint64_t most = piece_bytes_max(
        VolumeOperation::write, request.volume->remote().geometry(), permits_.max_io_bytes());
    piece.at = at;
    piece.bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, bytes));
    piece.zeroes_due = bytes - piece.bytes;
    std::memset(permit.payload().data(), 0, piece.bytes);
    VolumeIo io;
    io.operation = VolumeOperation::write;
    io.offset = request.offset + at;
    io.bytes = piece.bytes;
    send(request, piece, std::move(permit), io);
}

void Requests::send(Request& request, Piece& piece, rtrs::Permit permit, VolumeIo& io) {
    piece.operation = io.operation;
    io.context = &piece;
    io.responded = [](void* context, rtrs::Permit answered, std::error_code error) {
        auto& done = *static_cast<Piece*>(context);
        done.owner->piece_done(done, std::move(answered), error);
    };
    ++request.in_flight;
    reactor_.begin_request();
    request.volume->remote().submit(std::move(permit), io);
}

// --- Answers.

void Requests::piece_done(Piece& piece, rtrs::Permit permit, std::error_code error) {
    Request& request = *piece.request;
    --request.in_flight;
    reactor_.end_request();
    request.volume->answered();
    if (request.whole.zeroes_are_due(piece.operation, error)) {
        return write_zeroes(piece, std::move(permit), piece.at, piece.bytes);
    }
    if (RequestInPieces::is_moot(piece.operation, error)) {
        error.clear();
        request.started = request.bytes;
    }
    const std::uint64_t caches_lost = request.volume->remote().losses().caches;
    error = request.whole.answered(piece.operation, error, caches_lost);
    if (!error) error = take_answer(request, piece, permit);
    if (error && !request.error) request.error = error;
    if (piece.zeroes_due > 0 && !request.error) {
        return write_zeroes(piece, std::move(permit), piece.at + piece.bytes, piece.zeroes_due);
    }
    if (request.stage == Request::Stage::data && request.in_flight == 0 && !request.error &&
        request.started == request.bytes &&
        request.whole.needs_flush(request.volume->remote().geometry())) {
        request.stage = Request::Stage::flush_due;
    }
    if (more(request)) {
        send_piece(request, std::move(permit));
        if (request.linked() && !wants_permit(request)) no_longer_waits(request);
        return;
    }
    if (request.linked()) no_longer_waits(request);
    if (request.buffer != nullptr) {
        request.buffer->permit = std::move(permit);
    } else {
        give_back(request, std::move(permit));
    }
    if (request.in_flight > 0) return;
    if (!request.error && request.whole.lost_in_part(caches_lost)) {
        request.volume->lost_in_part();
    }
    finished_(context_, request);
}

// What the answer brings beside success.
std::error_code Requests::take_answer(Request& request, const Piece& piece,
                                      const rtrs::Permit& permit) {
    if (request.operation == VolumeOperation::read && request.buffer == nullptr) {
        visit(request.iov, piece.at, piece.bytes,
              [&](std::byte* memory, std::size_t at, std::size_t bytes) {
                  std::memcpy(memory, permit.payload().data() + at, bytes);
              });
    }
    if (request.operation != VolumeOperation::extents) return {};
    auto extents = request.volume->remote().extents_in(permit);
    if (!extents) return extents.error();
    static_cast<ExtentsQuestion*>(request.context)->found = std::move(*extents);
    return {};
}

// --- Failures.

void Requests::fail_later(Request& request, std::error_code error) {
    if (!request.error) request.error = error;
    if (request.linked()) no_longer_waits(request);
    if (request.in_flight > 0) return;  // with its last piece
    failed_.push_back(request);
    reporter_.arm(reactor_.now());
}

void Requests::fail_waiting(Volume& volume, std::error_code error) {
    volume.share.waiting.for_each([&](Request& request) { fail_later(request, error); });
    if (waiting_.empty()) stop_waiting();
}

void Requests::report_failures() {
    rtrs::IntrusiveList<Request> now;
    while (!failed_.empty()) now.push_back(failed_.pop_front());
    while (!now.empty()) finished_(context_, now.pop_front());
}

}  // namespace rnbd::library
