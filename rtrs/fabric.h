// The hardware seam, in verbs' words: registered memory, endpoints, posted work, completions.
//
// Implementations: fabric/tcp (sockets), fabric/verbs (rdma_cm and ibverbs), fabric/sim (virtual
// time), fabric/fault (a decorator). Everything above this header is the same code on all of them.
//
// THREAD: a Fabric and all that it makes belong to one reactor or ReactorGroup, and are used on the
// reactor's thread (reactor.h) only; or to one simulator. Their handlers come one at a time.
//
// What every fabric promises (tests/contract/fabric holds each to it):
//   P1  Posted work completes exactly once: a signalled request with a Completion, an unsignalled
//       one silently on success. After a failure every outstanding request, signalled or not,
//       completes with an error status.
//   P2  Order holds per endpoint and direction: what is posted first arrives first; a write is
//       placed before anything that was posted after it is seen by the peer.
//   P3  Handlers are never called from inside a call into the fabric, only from the reactor's turn.
//   P4  Exactly one of on_established or (on_rejected | on_disconnected) is the first event; after
//       on_established there is exactly one on_disconnected. on_drained is the last event, always
//       comes, and from then on the endpoint touches no buffer and no handler.
//   P5  Private data obeys rdma_cm's limits: a request carries at most private_data_request_max
//       bytes and a reply at most private_data_reply_max; the receiver may see trailing zero
//       bytes that the sender did not write.
//   P6  Remote access is checked on every operation: key known and valid in the endpoint's domain,
//       range inside its region or window, right granted. A violation fails that connection, on
//       both sides, and touches no memory.
//   P7  A message that consumes a receive (send, send with immediate, send with invalidate, write
//       with immediate) and finds none posted fails the connection. Of receives with buffers of
//       one size it may take any; one of another size only if that is the oldest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include "rtrs/base/bytes.h"
#include "rtrs/base/descriptors.h"
#include "rtrs/base/error.h"
#include "rtrs/base/instant.h"

namespace rtrs {

// rdma_cm over an IP address leaves 56 of a request's 92 bytes; a reply has 196 (rdma_accept(3)).
inline constexpr std::size_t private_data_request_max = 56;
inline constexpr std::size_t private_data_reply_max = 196;

using Key = std::uint32_t;

// Memory of the peer. The address is opaque to the side that did not register it.
struct RemoteBuffer {
    std::uint64_t address = 0;
    Key key = 0;
    std::uint32_t bytes = 0;
};

// Local memory inside a MemoryRegion of the endpoint's domain.
struct Segment {
    std::byte* data = nullptr;
    std::uint32_t bytes = 0;
};

enum class Access : std::uint8_t {
    local = 0,         // source of sends, target of receives
    remote_write = 1,  // the peer may write
    remote_read = 2,   // the peer may read
};
constexpr Access operator|(Access a, Access b) {
    return static_cast<Access>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool allows(Access granted, Access wanted) {
    return (static_cast<std::uint8_t>(granted) & static_cast<std::uint8_t>(wanted)) ==
           static_cast<std::uint8_t>(wanted);
}

// Registered memory. Destroying it deregisters: its key is refused from then on.
// ASSUMES: no posted work names it any more, and being_read() is false.
class MemoryRegion {
  public:
    virtual ~MemoryRegion() = default;
    virtual Key key() const noexcept = 0;
    virtual std::byte* data() const noexcept = 0;
    virtual std::uint64_t bytes() const noexcept = 0;
    // This side is still sending from it what a peer has asked to read. That has ended when the
    // endpoints of the domain have drained.
    virtual bool being_read() const noexcept { return false; }
    // What the peer needs to reach bytes [offset, offset + bytes). ASSUMES it lies inside.
    RemoteBuffer remote(std::uint64_t offset, std::uint32_t bytes) const noexcept {
        return {reinterpret_cast<std::uint64_t>(data() + offset), key(), bytes};
    }
};

// Revocable keys on parts of a region, for remote writes: windows by number, so that many cost
// little more than their keys. Each is born revoked. Destroying them kills their keys.
class MemoryWindows {
  public:
    virtual ~MemoryWindows() = default;
    // The key of the newest bind; meaningless while revoked. ASSUMES: one of them.
    virtual Key key(std::uint32_t number) const noexcept = 0;
};

// One of them.
struct MemoryWindow {
    MemoryWindows* of = nullptr;
    std::uint32_t number = 0;
    Key key() const noexcept { return of->key(number); }
};

// Keys of one domain open no memory of another.
class ProtectionDomain {
  public:
    virtual ~ProtectionDomain() = default;
    // memory: page aligned; owned by the caller, which keeps it mapped while the region lives.
    // ERRORS: ENOMEM (pinning limit, keys used up), EINVAL (empty).
    virtual std::expected<std::unique_ptr<MemoryRegion>, std::error_code> register_memory(
        MutableBytes memory, Access access) = 0;
    // Windows 0..count - 1. ASSUMES: region lives longer than they do, count > 0. ERRORS: ENOMEM,
    // EOPNOTSUPP (no windows here).
    virtual std::expected<std::unique_ptr<MemoryWindows>, std::error_code> create_windows(
        MemoryRegion& region, std::uint32_t count) = 0;
};

enum class WorkOpcode : std::uint8_t {
    send,             // local -> the peer's next receive
    send_immediate,   // the same, with an immediate
    send_invalidate,  // the same, and the peer's window key `invalidate` is dead before it is
                      // seen; a region's own key cannot be invalidated (remote_access)
    write,            // local -> remote
    write_immediate,  // the same, then consumes a receive of the peer
    read,             // remote -> local (exactly one segment)
    bind_window,      // window covers local[0] with a fresh key, before what is posted next
};

enum class Signal : std::uint8_t { none, completion };

struct WorkRequest {
    WorkOpcode opcode = WorkOpcode::send;
    Signal signal = Signal::none;
    // Handed back in the completion.
    std::uint64_t context = 0;
    // At most max_segments; each stays untouched by the caller until the work completes, or until
    // the peer's answer proves that it has arrived (Endpoint::source_release). The span itself is
    // read only during post().
    std::span<const Segment> local{};
    // write, write_immediate, read: where, and under which key. `bytes` is not used: the length is
    // the sum of local.
    RemoteBuffer remote{};
    std::uint32_t immediate = 0;
    Key invalidate = 0;
    MemoryWindow window{};
};

enum class CompletionOpcode : std::uint8_t {
    send,                // any send, write, read or bind that was posted here
    receive,             // a send of the peer arrived in a posted receive
    receive_immediate,   // a send or write with immediate arrived
    receive_invalidate,  // a send with invalidate arrived
    revoke,              // a post_revoke took effect
};

enum class CompletionStatus : std::uint8_t {
    success,
    flushed,        // the connection went down before, for another reason
    remote_access,  // P6 was violated
    length,         // longer than the receive
    transport,      // connection lost, checksum wrong, retries used up
};

struct Completion {
    CompletionOpcode opcode = CompletionOpcode::send;
    CompletionStatus status = CompletionStatus::success;
    std::uint64_t context = 0;
    // Bytes placed in the receive buffer (send) or in remote memory (write with immediate; not
    // dependable on all hardware: never validate with it).
    std::uint32_t bytes = 0;
    std::uint32_t immediate = 0;  // receive_immediate
    Key invalidated = 0;          // receive_invalidate
};

enum class RevokeResult : std::uint8_t {
    effective,  // the key is dead now
    pending,    // a Completion with opcode revoke will say so
};

// What the owner of an endpoint learns. Called in the reactor's turn (P3).
class EndpointHandler {
  public:
    // private_data lives for the call.
    virtual void on_established(Bytes private_data) = 0;
    // The peer refused (dialling side only); on_drained follows.
    virtual void on_rejected(Bytes private_data) = 0;
    virtual void on_completion(const Completion& completion) = 0;
    // The connection is no more, whoever ended it. reason: empty if this side called disconnect(),
    // Error::closed_by_peer if the peer did (over RDMA also its kernel, for a program that was
    // killed), ECONNRESET and the like from the system, Error::protocol, Error::checksum, ...
    // Completions of outstanding work follow, then on_drained.
    virtual void on_disconnected(std::error_code reason) = 0;
    // The endpoint may be destroyed from here on, also inside this call.
    virtual void on_drained() = 0;

  protected:
    ~EndpointHandler() = default;
};

struct EndpointOptions {
    // Work requests and receives that may be outstanding. 1..Endpoint::queue_depth_max.
    std::uint32_t send_queue_depth = 1024;
    std::uint32_t receive_queue_depth = 1024;
    // Which thread carries it, of a fabric that has several: this, modulo their number.
    std::uint32_t worker = 0;
    // A connection over which nothing passes for so long, though it should, is lost, and an idle
    // one is tried. Of fabrics that would not notice by themselves; a device tries a limited time.
    Duration silence_max = std::chrono::seconds(10);
    // When on_disconnected says that the peer has ended the connection: behind all that arrived
    // before, or as soon as it is known, with what is not handed out yet behind it. Of fabrics
    // where the two may come by different ways; on others it is behind.
    enum class EndNews : std::uint8_t { in_order, at_once };
    EndNews end_news = EndNews::in_order;
    // What leaves at one time, both ways: as much as the interface takes, or what every way must
    // take. Of fabrics that limits_packets().
    enum class Packets : std::uint8_t { full, small };
    Packets packets = Packets::full;
};

// Of a session with this heartbeat. It runs on one connection of a path only and judges peers that
// stand still; connections by themselves wait longer.
constexpr Duration silence_max_beside(Duration heartbeat_timeout) noexcept {
    return std::max(2 * heartbeat_timeout, EndpointOptions{}.silence_max);
}

// One connection, from connect() or accept() on. Destroyed only after on_drained.
class Endpoint {
  public:
    static constexpr std::size_t max_segments = 4;
    // Of either queue. Devices have less or more; what is above theirs is cut to it.
    static constexpr std::uint32_t queue_depth_max = 65535;
    // Places of a send queue that every fabric has, whatever depth was asked for above that.
    static constexpr std::uint32_t send_queue_depth_least = 128;
    // Longest payload of one work request.
    static constexpr std::uint32_t payload_bytes_max = 64u << 20;

    virtual ~Endpoint() = default;
    // Queues a chain: all of it or nothing. May be called between on_established and
    // on_disconnected; later the chain completes as flushed.
    // ERRORS: ENOBUFS send queue full (wait for a completion, also of a revoke; one comes if one of
    // the newest send_queue_depth_least requests was signalled), EMSGSIZE payload too long,
    // ENOTCONN not established yet, or drained.
    virtual std::error_code post(std::span<const WorkRequest> chain) = 0;
    // Offers a receive; buffer may be empty. Allowed from creation on.
    // ERRORS: ENOBUFS receive queue full.
    virtual std::error_code post_receive(std::uint64_t context, Segment buffer) = 0;
    // When what a request names as local may be changed or go away: by_answer as soon as the peer
    // has answered what arrived; by_completion not before the request has completed too, because
    // the device may still send it again.
    enum class SourceRelease : std::uint8_t { by_answer, by_completion };
    virtual SourceRelease source_release() const noexcept { return SourceRelease::by_answer; }
    // Requests of no more bytes than this are copied by post().
    virtual std::uint32_t copied_bytes_max() const noexcept { return 0; }
    // Kills the window's key.
    virtual RevokeResult post_revoke(MemoryWindow window, std::uint64_t context) = 0;
    // Idempotent. on_disconnected (if not yet delivered) and on_drained follow. why: said to the
    // peer by fabrics that have a word for it (TCP; DisconnectReason), not to this side.
    virtual void disconnect(std::error_code why) = 0;
    void disconnect() { disconnect(std::error_code{}); }
    // The same, but what has completed, and why, still reaches a peer that goes on taking it;
    // on_drained waits for that, and for the peer's own end (some seconds at most, half a second if
    // the peer takes nothing). Of fabrics where a completed send is one that the peer has there is
    // no difference.
    virtual void finish(std::error_code why) { disconnect(why); }
    // For how long the peer's side of the network has taken nothing of what is sent there again and
    // again. Zero: nothing is outstanding, or it is the first try, or the fabric does not know (a
    // device tries a limited time).
    virtual Duration unacknowledged() const noexcept { return Duration::zero(); }
    // For how long nothing has come, not even a part of a message, while all that was posted has
    // reached the peer's side of the network. Zero: something is under way there, or the fabric
    // does not know (a device's peer has what it acknowledges).
    virtual Duration quiet() const noexcept { return Duration::zero(); }
    // Whether something is sent there (again and again, when the connection is silent for a second)
    // though the owner has nothing to send, for unacknowledged() to tell of.
    virtual void ask_network(bool) noexcept {}
    // "10.0.0.1:1235": numeric, IPv6 in brackets. Empty while not connected.
    virtual std::string local_address() const = 0;
    virtual std::string remote_address() const = 0;
};

// A connection that a peer asks for. Answer once; destroying it unanswered rejects with no data,
// which is not what a peer expects that is to know why.
class ConnectRequest {
  public:
    virtual ~ConnectRequest() = default;
    virtual Bytes private_data() const noexcept = 0;
    virtual std::string local_address() const = 0;
    virtual std::string remote_address() const = 0;
    // What accepting it leaves of the process's descriptors, if its connections are some.
    virtual DescriptorsLeft descriptors_left() const noexcept { return {}; }
    // on_established or on_disconnected follows. Receives should be posted on the returned endpoint
    // at once. With an error the request is still unanswered.
    // ERRORS: ENOMEM, ECONNRESET (the peer has gone), EMSGSIZE (private data), and the device's.
    virtual std::expected<std::unique_ptr<Endpoint>, std::error_code> accept(
        ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
        EndpointHandler& handler) = 0;
    // Does nothing if it was answered, or the peer has gone.
    virtual void reject(Bytes private_data) = 0;
};

class ListenerHandler {
  public:
    virtual void on_connect_request(std::unique_ptr<ConnectRequest> request) = 0;

  protected:
    ~ListenerHandler() = default;
};

// Listening ends when it is destroyed.
class Listener {
  public:
    virtual ~Listener() = default;
    // The bound address with the real port.
    virtual std::string address() const = 0;
};

// An address is "HOST:PORT" with a numeric IPv4 or bracketed IPv6 host; the fabric parses it.
class Fabric {
  public:
    virtual ~Fabric() = default;
    // "tcp", "rdma", "sim": for logs.
    virtual const char* name() const noexcept = 0;
    // The RDMA device that it uses; empty if there is none.
    virtual std::string device() const { return {}; }
    // ERRORS: ENOMEM, ENODEV (the device has gone).
    virtual std::expected<std::unique_ptr<ProtectionDomain>, std::error_code> create_domain() = 0;
    // ERRORS: EADDRINUSE, EACCES, EINVAL (address not understood), EADDRNOTAVAIL.
    virtual std::expected<std::unique_ptr<Listener>, std::error_code> listen(
        const std::string& address, ListenerHandler& handler) = 0;
    // What connect() may take, until ETIMEDOUT is its result.
    virtual Duration connect_timeout() const noexcept = 0;
    // Whether EndpointOptions::packets changes anything.
    virtual bool limits_packets() const noexcept { return false; }
    // source: local address to dial from ("HOST"), or empty. The result arrives as an event.
    // ERRORS: EINVAL (address not understood), EMSGSIZE (private data), ENOMEM.
    virtual std::expected<std::unique_ptr<Endpoint>, std::error_code> connect(
        ProtectionDomain& domain, const std::string& source, const std::string& destination,
        Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) = 0;
};

}  // namespace rtrs
