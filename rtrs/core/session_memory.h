// The memory of a client session: a payload buffer and a header area per permit, and room for the
// response of a user message. It is registered once with each fabric that the session's paths use.
//
// The room for responses is there from open() on; the buffers come when the first server has told
// its sizes, and never change.
//
// OWNER: ClientSession. THREAD: the session's.
#pragma once

#include <cstddef>
#include <expected>
#include <memory>
#include <system_error>
#include <vector>

#include "rtrs/base/lazy_memory.h"
#include "rtrs/base/pages.h"
#include "rtrs/client.h"
#include "rtrs/core/client_path.h"
#include "rtrs/wire/request.h"

namespace rtrs {

// Longest response of a user message.
inline constexpr std::size_t control_bytes = page_bytes;
// Header area per permit: the user message followed by the request message; then the message of a
// fence.
inline constexpr std::size_t header_stride = 576;
inline constexpr std::size_t fence_offset =
    ClientSession::user_message_bytes_max + request_message_bytes_max;
static_assert(fence_offset + WriteMessage::wire_bytes + sequence_bytes <= header_stride);

class SessionMemory {
  public:
    // ERRORS: ENOMEM.
    std::error_code open();
    // As registered with this fabric, where that is done at the first call. ERRORS: what the
    // fabric's device says to it; the next call tries again.
    std::expected<FabricMemory*, std::error_code> of(Fabric& fabric);
    // No path uses it any more.
    void forget_fabrics() noexcept { fabrics_.clear(); }

    // Makes the buffers, all but the payload buffer of the permit for user messages, which is the
    // last one, and registers them with the fabric of `first`. If either fails there are none.
    std::expected<void, Unusable> make_buffers(FabricMemory& first, const ChunkGeometry& sizes);
    // Registers the buffers, if they are not yet: where a device cannot, the paths of other fabrics
    // go on.
    std::expected<void, Unusable> register_buffers(FabricMemory& memory) const;

    std::size_t payload_offset(std::uint32_t permit) const noexcept {
        return permit * payload_stride_;
    }
    std::byte* payload(std::uint32_t permit) const noexcept {
        return payload_.data() + payload_offset(permit);
    }
    std::byte* header(std::uint32_t permit) const noexcept {
        return headers_.data() + permit * header_stride;
    }
    std::byte* control() const noexcept { return control_.data(); }

  private:
    struct Buffers {
        const LazyMemory& payload;
        const LazyMemory& headers;
    };
    static std::error_code register_with(FabricMemory& memory, const Buffers& buffers);
    static Unusable refused_by(const FabricMemory& memory, std::error_code error);

    LazyMemory control_;
    LazyMemory payload_;  // empty until make_buffers()
    LazyMemory headers_;
    std::size_t payload_stride_ = 0;
    std::vector<std::unique_ptr<FabricMemory>> fabrics_;
};

}  // namespace rtrs
