// Every bound of the transport in one place, with the arithmetic that ties them together.
//
// Bounds marked (wire) are facts of the protocol and never change. Those marked (kernel) are what
// the Linux implementation uses and what a peer may rely on. The rest are our choice.
// Source: Linux drivers/infiniband/ulp/rtrs (rtrs-pri.h, rtrs-srv.c, rtrs-clt.c).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace rtrs::limits {

// --- The immediate (wire): 4 bits of type, 28 of payload.
inline constexpr unsigned immediate_payload_bits = 28;
inline constexpr unsigned immediate_errno_bits = 9;
inline constexpr unsigned immediate_response_permit_bits = 19;
// The largest errno an answer can carry.
inline constexpr int errno_max = (1 << immediate_errno_bits) - 1;

// --- Queue depth: chunks at the server = permits at the client, per session (wire: le16).
inline constexpr std::uint32_t queue_depth_min = 1;
inline constexpr std::uint32_t queue_depth_max = 65535;
inline constexpr std::uint32_t queue_depth_default = 512;

// --- Chunks: what a permit maps to.
inline constexpr std::uint32_t chunk_bytes_min = 8192;  // (kernel)
// A single chunk whose bytes are addressed by all 28 payload bits of the immediate.
inline constexpr std::uint32_t chunk_bytes_max = 1u << immediate_payload_bits;
inline constexpr std::uint32_t chunk_bytes_default = 131072;  // (kernel server)
// What our server offers: 128 KiB of data plus the headers. A kernel server's chunk of 128 KiB
// leaves 124 KiB for data, so that every request of the usual size becomes two.
inline constexpr std::uint32_t io_bytes_default = 131072;
// A chunk is a multiple of this. A kernel server only makes powers of two.
inline constexpr std::uint32_t chunk_alignment_bytes = 4096;
// All chunks of a session together are strictly smaller than this (wire: the client's 32-bit sum).
inline constexpr std::uint64_t chunk_memory_bytes_end = 1ull << 32;
// The part of a chunk that our server keeps for headers. A kernel server announces its page size,
// which may be 65536: always use what the peer announced.
inline constexpr std::uint32_t header_bytes_default = 4096;

// --- Names.
inline constexpr std::size_t name_field_bytes = 255;                 // (wire)
inline constexpr std::size_t name_bytes_max = name_field_bytes - 1;  // a NUL must follow

// --- Sessions, paths, connections.
inline constexpr std::uint32_t connections_max = 4096;  // (wire) per path
// Per path of our client, beside the service connection.
inline constexpr std::uint32_t io_connections_max = 64;
inline constexpr std::uint32_t paths_max = 128;  // (wire) per session
// How many instances of one path may exist at a time, when storage does not answer and connections
// are lost repeatedly: each keeps the memory of its chunks until its operations have ended.
inline constexpr std::uint32_t path_lives_max = 8;
inline constexpr std::uint16_t port_default = 1234;  // (kernel) RTRS_PORT

// --- Receives that a peer may rely on (kernel).
// Server, service connection (cid 0): one per request or heartbeat.
inline constexpr std::uint32_t service_queue_depth = 512;
// Client, service connection: two per request (an invalidation and the answer).
inline constexpr std::uint32_t client_service_receives = 2 * service_queue_depth;
// Our I/O connections: one for a heartbeat or its answer, in addition to what the permits need.
inline constexpr std::uint32_t io_heartbeat_receives = 1;
// Client, IO connection: the same, for every permit.
inline constexpr std::uint32_t client_io_receives_per_permit = 2;

// --- Descriptors (wire): a read names at most one destination.
inline constexpr std::uint32_t read_descriptors_max = 1;

// --- User messages: what a client may hand over and a server copies. An RNBD message needs 264.
inline constexpr std::uint32_t user_message_bytes_max = 512;
// Together with the longest request message behind it, a user message fits what the server
// reserves.
static_assert(user_message_bytes_max + 8 + 16 * read_descriptors_max <= header_bytes_default);

// The smallest n with 2^n >= value. value >= 1.
constexpr unsigned ceil_log2(std::uint64_t value) noexcept {
    return value <= 1 ? 0u : static_cast<unsigned>(std::bit_width(value - 1));
}

// True if a session can have these chunks: every bound above holds, the immediate can name every
// byte of every chunk, and all chunks together stay below 4 GiB.
constexpr bool geometry_possible(std::uint64_t queue_depth, std::uint64_t chunk_bytes) noexcept {
    return queue_depth >= queue_depth_min && queue_depth <= queue_depth_max &&
           chunk_bytes >= chunk_bytes_min && chunk_bytes <= chunk_bytes_max &&
           chunk_bytes % chunk_alignment_bytes == 0 &&
           ceil_log2(queue_depth) + ceil_log2(chunk_bytes) <= immediate_payload_bits &&
           queue_depth * chunk_bytes < chunk_memory_bytes_end;
}

static_assert(geometry_possible(queue_depth_default, chunk_bytes_default));
static_assert(geometry_possible(queue_depth_default, io_bytes_default + header_bytes_default));
static_assert(geometry_possible(1, chunk_bytes_max));
// 16 bits of permit leave 12 of offset, less than the smallest chunk: the deepest queue is 32768.
static_assert(!geometry_possible(queue_depth_max, chunk_bytes_min));
static_assert(geometry_possible(32768, chunk_bytes_min));
// The 28-bit rule already implies the 4 GiB rule.
static_assert((1ull << immediate_payload_bits) < chunk_memory_bytes_end);
static_assert(immediate_errno_bits + immediate_response_permit_bits == immediate_payload_bits);
// Every permit fits an answer.
static_assert(queue_depth_max < (1u << immediate_response_permit_bits));
static_assert(header_bytes_default < chunk_bytes_min, "a smallest chunk still carries data");
static_assert(header_bytes_default % chunk_alignment_bytes == 0);

}  // namespace rtrs::limits
