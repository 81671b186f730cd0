// Messages with tags between the two ends of a session, in both directions, of any size up to a
// limit: ClientSession::messages() and ServerSession::messages().
//
//   service->receive({.tag = 7}, 1 << 20, received, this);   // received() once, or cancel()
//   service->send(7, content, sent, this);                   // sent() once
//
// A message goes to the earliest posted receive that matches it (rtrs/tag/matcher.h has the rules).
// Each message is delivered once, whatever happens to paths, and messages are matched in the order
// of sending. Matched messages are delivered in the order in which they were matched. Messages that
// no receive waits for take at most window * eager bytes; then the sender waits.
//
// Messages are negotiated per session: with a kernel, or a peer that does not want them, nothing is
// ever sent or received. When the other end was created anew (a server that was restarted),
// everything posted or under way fails with Error::path_lost; a client's handler is told
// (on_messages_reset()).
//
// THREAD: the session's. Callbacks come in its turns, never from inside send(), receive() or
// cancel(); the callbacks may call all of these.
#pragma once

#include <cstdint>
#include <expected>
#include <system_error>

#include "rtrs/base/bytes.h"
#include "rtrs/base/instant.h"
#include "rtrs/base/lazy_memory.h"
#include "rtrs/tag/matcher.h"

namespace rtrs {

struct MessageOptions {
    // How many messages of the peer may wait here; 1..1024.
    std::uint32_t window = 16;
    // Longest content that is sent and accepted without a rendezvous; 64..1 MiB.
    std::uint32_t eager_bytes = 16384;
    // Longest content at all; eager_bytes..64 MiB.
    std::uint32_t longest_bytes = 16 << 20;
    std::uint32_t receives_max = 64;  // posted at a time; 1 or more
    std::uint32_t sends_max = 1024;   // whose sent() is still due, at a time; 1 or more
    // How long the peer may leave what it was sent unacknowledged before the path is given up, and
    // how long this side keeps trying if memory cannot be allocated or registered; above 0.
    Duration silence_max = std::chrono::seconds(5);
};

// The content of a message: page-aligned memory, as registration wants it. Move-only.
class MessageBuffer {
  public:
    MessageBuffer() noexcept = default;
    // Empty if the memory cannot be allocated, or bytes is 0.
    explicit MessageBuffer(std::size_t bytes)
        : memory_(bytes > 0 ? LazyMemory(bytes) : LazyMemory()), bytes_(memory_ ? bytes : 0) {}
    static MessageBuffer copy_of(Bytes content);

    std::size_t size() const noexcept { return bytes_; }
    MutableBytes bytes() const noexcept { return memory_.bytes().first(bytes_); }

  private:
    LazyMemory memory_;
    std::size_t bytes_ = 0;
};

struct ReceivedMessage {
    Tag tag = 0;
    // Valid during the call; empty with an error.
    Bytes content{};
    // Length of the whole message, also if it was too long for the receive.
    std::uint64_t bytes = 0;
    // EMSGSIZE: the message was longer than the receive and is lost. Error::path_lost: the other
    // end was created anew. Error::closed: the session has ended. ENOMEM: no memory for the message
    // could be allocated or registered; it is lost.
    std::error_code error{};
};

struct MessageStatus {
    bool up = false;  // a connection for messages is established
    std::uint32_t posted = 0;
    std::uint32_t unexpected = 0;
    std::uint64_t unexpected_bytes = 0;
    std::uint32_t sending = 0;
    std::uint64_t sent = 0;  // finished
    std::uint64_t received = 0;
    std::uint64_t rendezvous = 0;     // of those received
    std::uint32_t registrations = 0;  // of memory for rendezvous, both directions
};

class MessageService {
  public:
    // error: empty, Error::path_lost (the other end was created anew), Error::closed, EMSGSIZE
    // (longer than the peer accepts), ENOMEM (its memory could not be registered; a message that
    // was already announced over another path waits instead).
    using Sent = void (*)(void* context, std::error_code error);
    using Received = void (*)(void* context, const ReceivedMessage& message);

    // sent may be null. ERRORS: ENOBUFS (sends_max), EMSGSIZE (longest_bytes), ENOTCONN (closed).
    virtual std::error_code send(Tag tag, MessageBuffer content, Sent sent, void* context) = 0;
    // capacity_bytes: length of the longest message that the receive accepts. ERRORS: EINVAL
    // (impossible pattern), ENOBUFS (receives_max), ENOTCONN (closed).
    virtual std::expected<ReceiveId, std::error_code> receive(TagPattern pattern,
                                                              std::uint64_t capacity_bytes,
                                                              Received received, void* context) = 0;
    // True: received() will not be called. False: it was called, or will be.
    virtual bool cancel(ReceiveId id) = 0;
    virtual MessageStatus status() const = 0;

  protected:
    ~MessageService() = default;
};

}  // namespace rtrs
