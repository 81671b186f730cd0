// The chunks of one server path: the memory that permits map to, and one operation slot per permit.
// Each path has its own chunks, so that a dying path cannot overwrite what another one uses.
//
// The memory is reserved, not committed: a chunk and its slot take memory only once their permit
// was used.
#pragma once

#include <cstdint>

#include "rtrs/base/lazy_array.h"
#include "rtrs/core/admission.h"
#include "rtrs/server.h"
#include "rtrs/wire/request.h"

namespace rtrs {

class ServerPath;

// One request, from its arrival until its answer is posted. All zero is a free slot.
struct OpSlot : Attempt {
    // held: see ServerPath::hold_requests(). waiting: for an earlier attempt of its permit
    // (admission.h). answering: the answer waits for a place in the send queue.
    enum class State : std::uint8_t { free = 0, revoking, held, waiting, running, answering };

    State state;
    bool rebound;  // answering: its window already has its fresh key
    // running, answering: the number of its answer buffer plus 1; 0: none.
    std::uint8_t answer_buffer;
    std::uint16_t connection;
    std::uint32_t offset;  // of the request message, from the immediate
    ServerPath* path;      // on which the request arrived and is answered
    RequestMessage request;
    int answer_error;
    std::uint32_t answer_bytes;
    void* chunk_context;  // the handler's; kept while the slot is free
    std::byte message[limits::user_message_bytes_max];
    ServerOp op;
};

class ChunkPool {
  public:
    ChunkPool(std::uint32_t queue_depth, std::uint32_t chunk_bytes)
        : chunk_bytes_(chunk_bytes),
          memory_(static_cast<std::size_t>(queue_depth) * chunk_bytes),
          key_responses_(static_cast<std::size_t>(queue_depth) * KeyResponseMessage::wire_bytes),
          slots_(queue_depth) {}

    explicit operator bool() const noexcept { return memory_ && key_responses_ && slots_; }
    std::uint32_t count() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
    std::uint32_t chunk_bytes() const noexcept { return chunk_bytes_; }
    MutableBytes memory() const noexcept { return memory_.bytes(); }
    std::byte* chunk(std::uint32_t permit) const noexcept {
        return memory_.data() + static_cast<std::size_t>(permit) * chunk_bytes_;
    }
    // The bodies of SEND_WITH_IMM answers. Each stays untouched until its permit's next request
    // proves that the answer has arrived.
    MutableBytes key_responses() const noexcept { return key_responses_.bytes(); }
    MutableBytes key_response(std::uint32_t permit) const noexcept {
        return key_responses_.bytes().subspan(std::size_t{permit} * KeyResponseMessage::wire_bytes,
                                              KeyResponseMessage::wire_bytes);
    }
    OpSlot& slot(std::uint32_t permit) noexcept { return slots_[permit]; }
    const OpSlot& slot(std::uint32_t permit) const noexcept { return slots_[permit]; }

  private:
    std::uint32_t chunk_bytes_;
    LazyMemory memory_;
    LazyMemory key_responses_;
    LazyArray<OpSlot> slots_;
};

}  // namespace rtrs
