// The interface to the hardware, in the terms of verbs: registered memory, endpoints, posted work,
// completions.
//
// Implementations: fabric/tcp (sockets), fabric/verbs (rdma_cm and ibverbs), fabric/sim (virtual
// time), fabric/fault (a decorator). Everything above this header is the same code on all of them.
//
// THREAD: a Fabric and everything that it makes belong to one reactor or ReactorGroup and are used
// only on the reactor's thread (reactor.h), or they belong to one simulator. Handlers are called
// one at a time.
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
//       with immediate) and finds none posted fails the connection. Among receives with buffers of
//       one size it may consume any; a receive of another size only if that is the oldest.
#pragma once

#include <algorithm>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
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
    // Whether this side is still sending data from it that a peer has asked to read. That has ended
    // once the endpoints of the domain have drained.
    virtual bool being_read() const noexcept { return false; }
    // What the peer needs to reach bytes [offset, offset + bytes). ASSUMES it lies inside.
    RemoteBuffer remote(std::uint64_t offset, std::uint32_t bytes) const noexcept {
        return {reinterpret_cast<std::uint64_t>(data() + offset), key(), bytes};
    }
};

// Memory windows: revocable keys on parts of a region, for remote writes. They are addressed by
// number, so that many of them cost little more than their keys. Each starts out revoked.
// Destroying the object kills all keys.
class MemoryWindows {
  public:
    virtual ~MemoryWindows() = default;
    // The key of the newest bind; meaningless while the window is revoked. ASSUMES: number is that
    // of an existing window.
    virtual Key key(std::uint32_t number) const noexcept = 0;
};

// One window of a MemoryWindows.
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
    // ERRORS: ENOMEM (pinning limit, no keys left), EINVAL (empty).
    virtual std::expected<std::unique_ptr<MemoryRegion>, std::error_code> register_memory(
        MutableBytes memory, Access access) = 0;
    // Creates windows 0..count - 1. ASSUMES: the region outlives them, count > 0. ERRORS: ENOMEM,
    // EOPNOTSUPP (the fabric has no windows).
    virtual std::expected<std::unique_ptr<MemoryWindows>, std::error_code> create_windows(
        MemoryRegion& region, std::uint32_t count) = 0;
};

enum class WorkOpcode : std::uint8_t {
    send,             // local -> the peer's next receive
    send_immediate,   // as send, with an immediate
    send_invalidate,  // as send; the peer's window key `invalidate` is dead before the message is
                      // seen; a region's own key cannot be invalidated (remote_access)
    write,            // local -> remote
    write_immediate,  // as write, then consumes a receive of the peer
    read,             // remote -> local (exactly one segment)
    bind_window,      // window covers local[0] with a fresh key, effective before work posted next
};

enum class Signal : std::uint8_t { none, completion };

struct WorkRequest {
    WorkOpcode opcode = WorkOpcode::send;
    Signal signal = Signal::none;
    // Handed back in the completion.
    std::uint64_t context = 0;
    // At most max_segments. The caller leaves each untouched until the work completes, or until the
    // peer's answer proves that it has arrived (Endpoint::source_release). The span itself is read
    // during post() only.
    std::span<const Segment> local{};
    // For write, write_immediate and read: where in the peer's memory, and under which key. `bytes`
    // is not used: the length is the sum of local.
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
    // reliable on all hardware: never validate with it).
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
    // private_data is valid during the call.
    virtual void on_established(Bytes private_data) = 0;
    // The peer refused (dialling side only); on_drained follows.
    virtual void on_rejected(Bytes private_data) = 0;
    virtual void on_completion(const Completion& completion) = 0;
    // The connection has ended, whoever ended it. reason: empty if this side called disconnect(),
    // Error::closed_by_peer if the peer did (over RDMA also if the peer's kernel did, for a program
    // that was killed), ECONNRESET and the like from the system, Error::protocol, Error::checksum,
    // ... Completions of outstanding work follow, then on_drained.
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
    // On a fabric with several threads: which one carries the endpoint (this number modulo the
    // number of threads).
    std::uint32_t worker = 0;
    // A connection is lost if nothing passes over it for this long although something should; an
    // idle connection is probed. For fabrics that would not notice by themselves; a device retries
    // for a limited time.
    Duration silence_max = std::chrono::seconds(10);
    // When on_disconnected reports that the peer has ended the connection. in_order: after
    // everything that arrived before. at_once: as soon as it is known; what was not handed out yet
    // comes after it. This matters on fabrics where the two may arrive by different ways; on others
    // it is in_order.
    enum class EndNews : std::uint8_t { in_order, at_once };
    EndNews end_news = EndNews::in_order;
    // Size of packets in both directions. full: as much as the interface takes. small: what every
    // network path must carry. For fabrics whose limits_packets() is true.
    enum class Packets : std::uint8_t { full, small };
    Packets packets = Packets::full;
};

// silence_max for the connections of a session with this heartbeat timeout. The heartbeat runs on
// one connection of a path only, and detects peers that stand still; the connections' own limit is
// longer.
constexpr Duration silence_max_beside(Duration heartbeat_timeout) noexcept {
    return std::max(2 * heartbeat_timeout, EndpointOptions{}.silence_max);
}

// One connection, from connect() or accept() on. May be destroyed only after on_drained.
class Endpoint {
  public:
    static constexpr std::size_t max_segments = 4;
    // The greatest depth of either queue. A device's own limit may be lower or higher; a depth
    // above the device's limit is reduced to it.
    static constexpr std::uint32_t queue_depth_max = 65535;
    // The send queue of every fabric has at least this many places if that many or more were asked
    // for.
    static constexpr std::uint32_t send_queue_depth_least = 128;
    // Longest payload of one work request.
    static constexpr std::uint32_t payload_bytes_max = 64u << 20;

    virtual ~Endpoint() = default;
    // Queues a chain of work requests: all of it or nothing. May be called between on_established
    // and on_disconnected; after on_disconnected the chain completes as flushed.
    // ERRORS: ENOBUFS send queue full (wait for a completion, which may be that of a revoke; one
    // comes if one of the newest send_queue_depth_least requests was signalled), EMSGSIZE payload
    // too long, ENOTCONN not established yet, or drained.
    virtual std::error_code post(std::span<const WorkRequest> chain) = 0;
    // Offers a receive; buffer may be empty. Allowed from creation on.
    // ERRORS: ENOBUFS receive queue full.
    virtual std::error_code post_receive(std::uint64_t context, Segment buffer) = 0;
    // When the memory that a request names as local may be changed or freed. by_answer: as soon as
    // the peer has answered what arrived. by_completion: not before the request has completed too,
    // because the device may still retransmit it.
    enum class SourceRelease : std::uint8_t { by_answer, by_completion };
    virtual SourceRelease source_release() const noexcept { return SourceRelease::by_answer; }
    // post() copies the data of requests of at most this many bytes.
    virtual std::uint32_t copied_bytes_max() const noexcept { return 0; }
    // Kills the window's key.
    virtual RevokeResult post_revoke(MemoryWindow window, std::uint64_t context) = 0;
    // Idempotent. on_disconnected (if not yet delivered) and on_drained follow. why: told to the
    // peer by fabrics that can carry a reason (TCP; DisconnectReason); this side is not told.
    virtual void disconnect(std::error_code why) = 0;
    void disconnect() { disconnect(std::error_code{}); }
    // As disconnect(), but sends that have completed, and why, still reach a peer that keeps
    // receiving. on_drained waits for that, and for the peer to end its side (some seconds at most,
    // half a second if the peer takes nothing). No different from disconnect() on fabrics where a
    // send completes only when the peer has it.
    virtual void finish(std::error_code why) { disconnect(why); }
    // For how long the peer's side of the network has acknowledged nothing of what is retransmitted
    // to it. Zero: nothing is outstanding, or it is the first transmission, or the fabric does not
    // know (a device retries for a limited time).
    virtual Duration unacknowledged() const noexcept { return Duration::zero(); }
    // For how long nothing has been received, not even a part of a message, since what was posted
    // has reached the peer's side of the network. Short, or zero: something is still under way to
    // it. A device counts what does not move at all as silence, and needs ask_network().
    virtual Duration quiet() const noexcept { return Duration::zero(); }
    // Whether probes are sent to the peer's side of the network (repeatedly, when the connection
    // has been silent for a second) although the owner has nothing to send, so that
    // unacknowledged() can tell.
    virtual void ask_network(bool) noexcept {}
    // "10.0.0.1:1235": numeric, IPv6 in brackets. Empty while not connected.
    virtual std::string local_address() const = 0;
    virtual std::string remote_address() const = 0;
};

// What every fabric takes.
inline bool depths_valid(const EndpointOptions& options) noexcept {
    const auto in_range = [](std::uint32_t depth) {
        return depth >= 1 && depth <= Endpoint::queue_depth_max;
    };
    return in_range(options.send_queue_depth) && in_range(options.receive_queue_depth);
}

// A connection that a peer asks for. Answer it once. Destroying it unanswered rejects it without
// private data, so that the peer does not learn why.
class ConnectRequest {
  public:
    virtual ~ConnectRequest() = default;
    virtual Bytes private_data() const noexcept = 0;
    virtual std::string local_address() const = 0;
    virtual std::string remote_address() const = 0;
    // How many of the process's file descriptors are left to peers, this request's own included, if
    // the fabric's connections use any.
    virtual DescriptorsLeft descriptors_left() const noexcept { return {}; }
    // Of a fabric with several threads, each held on processors of its own: which thread
    // (EndpointOptions::worker) is held where the request has arrived, of how many. There, what the
    // peer sends is in the cache, and nobody else has to be woken. None: there is no such thread.
    struct NearestWorker {
        std::uint32_t number = 0;
        std::uint32_t of = 1;
    };
    virtual std::optional<NearestWorker> nearest_worker() const noexcept { return {}; }
    // on_established or on_disconnected follows. Receives should be posted on the returned endpoint
    // at once. After an error the request is still unanswered.
    // ERRORS: ENOMEM, ECONNRESET (the peer has gone), EMSGSIZE (private data), and the device's.
    virtual std::expected<std::unique_ptr<Endpoint>, std::error_code> accept(
        ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
        EndpointHandler& handler) = 0;
    // Does nothing if the request was already answered or the peer has gone.
    virtual void reject(Bytes private_data) = 0;
};

class ListenerHandler {
  public:
    virtual void on_connect_request(std::unique_ptr<ConnectRequest> request) = 0;

  protected:
    ~ListenerHandler() = default;
};

// Listening ends when this object is destroyed.
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
    // How long connect() may take before it fails with ETIMEDOUT.
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
