#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rtrs/fabric/tcp/complaints.h"
#include "rtrs/fabric/tcp/dial.h"
#include "rtrs/fabric/tcp/endpoint.h"
#include "rtrs/fabric/tcp/socket_options.h"

namespace rtrs::tcp {
namespace {

// From so much missing payload on, a receive of its own is cheaper than a copy.
constexpr std::uint32_t direct_bytes_min = 16u << 10;
// One direct receive: what is still in the cache when its checksum is computed.
constexpr std::uint32_t direct_bytes_max = 256u << 10;
// A payload that would have been better placed directly.
constexpr std::uint32_t large_payload_bytes = 32u << 10;
// Receive size while large payloads are expected: some headers, little to copy.
constexpr std::uint32_t large_mode_bytes = 512;
constexpr std::uint8_t large_mode_frames = 4;
// Payloads of one receive, while a peer that works beside us could begin with what comes of them;
// and bytes that are no load.
constexpr std::uint32_t part_payloads = 12;
constexpr std::uint32_t part_bytes_min = 48u << 10;
// So many full parts one after the other: the peer is far ahead, and parts only cost.
constexpr std::uint32_t full_parts_max = 6;
// So many receives in a row have brought all that there was, and of a peer that works beside us no
// more than this: the next will do so, too.
constexpr std::uint32_t whole_receives_min = 8;
constexpr std::int32_t whole_bytes_max = 24 << 10;
// Receives after which it is looked for again where the peer runs.
constexpr std::uint32_t receives_per_look = 16;

// Whether a receive that brought nothing is no end of the stream.
bool comes_again(std::int32_t result) noexcept {
    switch (-result) {
        case ENOBUFS:    // every shared buffer is taken in this turn
        case ECANCELED:  // see receives_on()
        case EINTR:
        case EAGAIN:
            return true;
        default:
            return false;
    }
}

}  // namespace

std::error_code TcpEndpoint::post_receive(std::uint64_t context, Segment buffer) {
    if (state_ == State::drained) return from_errno(ENOTCONN);
    if (receives_.full()) return from_errno(ENOBUFS);
    receives_.push({context, buffer});
    return {};
}

void TcpEndpoint::arm_receive() {
    if (state_ != State::established) return;
    if (stream_operation_.in_flight || direct_operation_.in_flight) return;
    if (in_payload_ && payload_left_ >= direct_bytes_min) return receive_direct();
    if (receives_on()) return reactor_.recv_multishot(stream_operation_, fd_);
    reactor_.recv_provided(
        stream_operation_, fd_, receive_bytes_max(),
        socket_nonempty_ ? Reactor::FirstTry::at_once : Reactor::FirstTry::after_poll);
}

// Whether one receive that stays is the way. What is in the middle of a large payload, or would
// better be received in parts, needs an end.
bool TcpEndpoint::receives_on() const noexcept {
    if (whole_receives_ < whole_receives_min || large_expected_ > 0) return false;
    return !in_payload_ || payload_left_ < direct_bytes_min;
}

// 0: whatever there is.
std::uint32_t TcpEndpoint::receive_bytes_max() const noexcept {
    if (large_expected_ > 0 && !in_payload_) return large_mode_bytes;
    if (!peer_elsewhere_ || full_parts_ >= full_parts_max) return 0;
    return std::max(part_bytes_min, part_payloads * usual_payload_bytes_);
}

// What came last was brought by the processor that a peer on this machine ran on, or by the one
// that serves the network. Whoever is woken on ours would take it from us in the middle of a turn.
bool TcpEndpoint::look_for_peer() const noexcept {
    const auto processor = processor_of_arrival(fd_);
    return processor && *processor != static_cast<unsigned>(::sched_getcpu());
}

void TcpEndpoint::receive_direct() {
    if (writes_remotely()) {
        direct_slot_ = domain_.keys().find(frame_.key);
        if (direct_slot_ == 0) return fail(Error::remote_access);  // revoked meanwhile
        domain_.begin_placing(direct_slot_);
    }
    direct_bytes_ = std::min(payload_left_, direct_bytes_max);
    whole_receives_ = 0;
    reactor_.recv_all(direct_operation_, fd_, {target_, direct_bytes_});
}

// How the next receives are made.
void TcpEndpoint::learn_from(const Operation::Result& result) noexcept {
    socket_nonempty_ = result.socket_nonempty;
    full_parts_ = socket_nonempty_ ? full_parts_ + 1 : 0;
    const bool prompt = reactor_.prompt_sends();
    if (receives_made_++ % receives_per_look == 0) peer_elsewhere_ = prompt && look_for_peer();
    const bool whole = !socket_nonempty_ && (!peer_elsewhere_ || result.value < whole_bytes_max);
    const bool counts = whole && prompt && reactor_.keeps_receives();
    whole_receives_ = counts ? std::min(whole_receives_ + 1, whole_receives_min) : 0;
}

void TcpEndpoint::on_stream(const Operation::Result& result) {
    if (state_ == State::established && result.value > 0) {
        learn_from(result);
        feed(reactor_.received(*result.buffer, static_cast<std::uint32_t>(result.value)));
    }
    if (result.buffer) reactor_.return_buffer(*result.buffer);
    if (lingers_ && result.value <= 0 && !comes_again(result.value)) return end_lingering();
    if (state_ != State::established) return schedule();
    if (result.value <= 0) return stream_ended(result.value);
    if (!result.more) return arm_receive();
    if (!receives_on()) reactor_.cancel(stream_operation_);  // another one follows its end
}

void TcpEndpoint::on_direct(const Operation::Result& result) {
    if (direct_slot_ != 0) domain_.end_placing(std::exchange(direct_slot_, 0));
    if (state_ != State::established) return schedule();
    if (result.value <= 0) return stream_ended(result.value);
    socket_nonempty_ = result.socket_nonempty;
    const auto bytes = static_cast<std::size_t>(result.value);
    if (frame_.has_payload_crc()) payload_crc_.add({target_, bytes});
    payload_arrived(bytes);
    arm_receive();
}

// No bytes came: the end, or try again.
void TcpEndpoint::stream_ended(std::int32_t result) {
    if (comes_again(result)) return schedule();
    fail(from_errno(result == 0 ? ECONNRESET : result));
}

void TcpEndpoint::feed(Bytes bytes) {
    while (!bytes.empty() && state_ == State::established) {
        bytes = in_payload_ ? take_payload(bytes) : take_header(bytes);
    }
}

Bytes TcpEndpoint::take_header(Bytes bytes) {
    const std::byte* header = bytes.data();
    if (partial_header_bytes_ == 0 && bytes.size() >= header_bytes) {
        bytes = bytes.subspan(header_bytes);
    } else {
        const std::size_t part = std::min(bytes.size(), header_bytes - partial_header_bytes_);
        std::memcpy(partial_header_.data() + partial_header_bytes_, bytes.data(), part);
        partial_header_bytes_ += part;
        bytes = bytes.subspan(part);
        if (partial_header_bytes_ < header_bytes) return bytes;
        partial_header_bytes_ = 0;
        header = partial_header_.data();
    }
    const std::span<const std::byte, header_bytes> its_bytes(header, header_bytes);
    if (const auto error = parse_header(its_bytes, frame_)) {
        refuse(*error, wrong_with_header(its_bytes));
    } else {
        begin_frame();
    }
    return bytes;
}

Bytes TcpEndpoint::take_payload(Bytes bytes) {
    // A handler may have revoked the key since the part before was placed.
    if (writes_remotely() && domain_.keys().find(frame_.key) == 0) {
        fail(Error::remote_access);
        return {};
    }
    const Bytes part = bytes.first(std::min<std::size_t>(bytes.size(), payload_left_));
    if (frame_.has_payload_crc()) {
        payload_crc_.add_copied(target_, part);
    } else {
        std::memcpy(target_, part.data(), part.size());
    }
    payload_arrived(part.size());
    return bytes.subspan(part.size());
}

void TcpEndpoint::payload_arrived(std::size_t bytes) noexcept {
    target_ += bytes;
    payload_left_ -= static_cast<std::uint32_t>(bytes);
    if (payload_left_ == 0) finish_frame();
}

bool TcpEndpoint::writes_remotely() const noexcept {
    return frame_.opcode == Opcode::write || frame_.opcode == Opcode::write_immediate;
}

void TcpEndpoint::begin_frame() {
    const bool checksummed = agreement_.payload_crc == SendQueue::PayloadCrc::computed;
    if (frame_.has_payload_crc() != (checksummed && frame_.payload_bytes > 0)) {
        return refuse(Error::protocol, complaints::has_checksum_or_not(frame_, checksummed));
    }
    payload_left_ = frame_.payload_bytes;
    usual_payload_bytes_ = std::max(std::min(frame_.payload_bytes, large_payload_bytes),
                                    usual_payload_bytes_ - usual_payload_bytes_ / 32);
    if (frame_.payload_bytes >= large_payload_bytes) {
        large_expected_ = large_mode_frames;
    } else if (large_expected_ > 0) {
        --large_expected_;
    }
    if (payload_left_ == 0) return finish_frame();
    target_ = find_target(frame_);
    if (target_ == nullptr) return;
    payload_crc_ = Crc32c();
    in_payload_ = true;
}

// Where the payload goes; null if it must not be placed, then the connection has failed.
std::byte* TcpEndpoint::find_target(const FrameHeader& header) {
    switch (header.opcode) {
        case Opcode::send:
        case Opcode::send_immediate:
        case Opcode::send_invalidate:
            return find_receive(header);
        case Opcode::write:
        case Opcode::write_immediate: {
            std::byte* memory = domain_.keys().open(header.key, header.address,
                                                    header.payload_bytes, Access::remote_write);
            if (memory == nullptr) {
                refuse(Error::remote_access,
                       complaints::no_such_memory(header, header.payload_bytes));
            }
            return memory;
        }
        case Opcode::read_request:
            return read_request_.data();
        case Opcode::read_response:
            return find_read(header);
        case Opcode::connect_request:
        case Opcode::accept:
        case Opcode::reject:
        case Opcode::disconnect:
            break;
    }
    refuse(Error::protocol, complaints::out_of_place(header));
    return nullptr;
}

std::byte* TcpEndpoint::find_receive(const FrameHeader& header) {
    if (receives_.empty()) {
        refuse(Error::protocol, complaints::no_receive(header));
        return nullptr;
    }
    const Segment buffer = receives_.next().buffer;
    if (header.payload_bytes > buffer.bytes) {
        first_receive_status_ = CompletionStatus::length;
        refuse(Error::protocol, complaints::longer_than_receive(header, buffer.bytes));
        return nullptr;
    }
    return buffer.data;
}

std::byte* TcpEndpoint::find_read(const FrameHeader& header) {
    if (reads_.empty()) {
        refuse(Error::protocol, complaints::no_such_read(header));
        return nullptr;
    }
    const Read& first = reads_.front();
    if (header.address != first.id || header.payload_bytes != first.target.bytes) {
        refuse(Error::protocol, complaints::another_read(header, {first.target.bytes, first.id}));
        return nullptr;
    }
    return first.target.data;
}

void TcpEndpoint::finish_frame() {
    in_payload_ = false;
    if (frame_.has_payload_crc() && payload_crc_.value() != frame_.payload_crc) {
        return refuse(Error::checksum, complaints::payload_checksum(frame_, payload_crc_.value()));
    }
    const std::uint32_t empty_before = std::exchange(empty_writes_, 0);
    switch (frame_.opcode) {
        case Opcode::send:
            return deliver_receive(CompletionOpcode::receive);
        case Opcode::send_immediate:
        case Opcode::write_immediate:
            return deliver_receive(CompletionOpcode::receive_immediate);
        case Opcode::send_invalidate:
            return invalidate_and_deliver();
        case Opcode::write:
            if (frame_.payload_bytes == 0) empty_write(empty_before);
            return;
        case Opcode::read_request:
            return answer_read();
        case Opcode::read_response:
            return finish_read();
        case Opcode::disconnect:
            return fail(disconnect_error(frame_.immediate));
        case Opcode::connect_request:
        case Opcode::accept:
        case Opcode::reject:
            return refuse(Error::protocol, complaints::out_of_place(frame_));
    }
}

// Its owner does not see them: nobody else would stop a peer that sends nothing else.
void TcpEndpoint::empty_write(std::uint32_t before) {
    empty_writes_ = before + 1;
    if (empty_writes_ > empty_writes_max)
        refuse(Error::protocol, complaints::too_many_empty_writes(empty_writes_));
}

void TcpEndpoint::deliver_receive(CompletionOpcode opcode) {
    if (receives_.empty()) return refuse(Error::protocol, complaints::no_receive(frame_));
    Completion completion;
    completion.opcode = opcode;
    completion.context = receives_.pop().context;
    completion.bytes = frame_.payload_bytes;
    completion.immediate = frame_.immediate;
    completion.invalidated = opcode == CompletionOpcode::receive_invalidate ? frame_.key : 0;
    handler_.on_completion(completion);
}

void TcpEndpoint::invalidate_and_deliver() {
    if (receives_.empty()) return refuse(Error::protocol, complaints::no_receive(frame_));
    if (!domain_.invalidate(frame_.key)) {
        return refuse(Error::remote_access, complaints::no_such_key(frame_));
    }
    deliver_receive(CompletionOpcode::receive_invalidate);
}

// Answers are sent with a copy: the peer may say that it has finished with one before the kernel
// has let go of it, and then nobody may be reading it any more.
void TcpEndpoint::answer_read() {
    if (zero_copies_) give_up_zero_copies();
    const ReadRequest request = parse_read_request(read_request_);
    if (request.bytes > payload_bytes_max || answers_.count() == answers_max) {
        return refuse(Error::protocol,
                      complaints::too_much_to_read(request, answers_.count(), answers_max));
    }
    Segment source{nullptr, request.bytes};
    Answer answer;
    if (request.bytes > 0) {
        source.data =
            domain_.keys().open(frame_.key, frame_.address, request.bytes, Access::remote_read);
        if (source.data == nullptr) {
            return refuse(Error::remote_access, complaints::no_such_memory(frame_, request.bytes));
        }
        answer.slot = domain_.keys().find(frame_.key);
        domain_.begin_placing(answer.slot);
    }
    answer.end = sends_.append({.opcode = Opcode::read_response, .address = request.id},
                               {&source, 1}, agreement_.payload_crc);
    answers_.push(answer);
    schedule();
}

void TcpEndpoint::finish_read() {
    // An empty answer did not pass find_read().
    if (frame_.payload_bytes == 0 && find_read(frame_) == nullptr) return;
    sends_.answered(reads_.front().work);
    reads_.pop();
    complete_works();
}

}  // namespace rtrs::tcp
