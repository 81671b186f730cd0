// Registered memory of the TCP fabric: a domain's regions and windows, and who is placing bytes
// into them right now.
//
// Large payloads are received from the socket straight into remote-writable memory. A key that is
// revoked meanwhile is dead at once for everything new. The connection that is in the middle of
// such a payload fails, and the revoke takes effect (completes) when the ring has let go of the
// memory.
//
// THREAD: the fabric's. A domain outlives its regions, windows and endpoints; regions and windows
// are destroyed while no payload is being received into them (after the endpoints drained).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rtrs/base/intrusive_list.h"
#include "rtrs/fabric.h"
#include "rtrs/fabric/tcp/key_table.h"

namespace rtrs::tcp {

class TcpEndpoint;
class TcpDomain;

class TcpRegion final : public MemoryRegion {
  public:
    TcpRegion(TcpDomain& domain, std::uint32_t slot, MutableBytes memory, Access access) noexcept;
    ~TcpRegion() override;
    Key key() const noexcept override { return key_; }
    std::byte* data() const noexcept override { return memory_.data(); }
    std::uint64_t bytes() const noexcept override { return memory_.size(); }
    bool being_read() const noexcept override;

  private:
    TcpDomain& domain_;
    std::uint32_t slot_;
    MutableBytes memory_;
    Key key_;
};

// A window is only its slot in the domain's key table: an idle session has one for each of its
// chunks.
class TcpWindows final : public MemoryWindows {
  public:
    TcpWindows(TcpDomain& domain, TcpRegion& region, std::uint32_t first_slot,
               std::uint32_t count) noexcept
        : domain_(domain), region_(region), first_slot_(first_slot), count_(count) {}
    ~TcpWindows() override;
    Key key(std::uint32_t number) const noexcept override;

    // Returns 0 if bind() may be called, or EINVAL (outside of the region, no such window), EBUSY
    // (bytes are still being placed under the last key, or its revoke has not been reported).
    int check_bind(std::uint32_t number, const Segment& range) const noexcept;
    void bind(std::uint32_t number, const Segment& range) noexcept;
    // pending: the waiter's revoked() is called later. ASSUMES: no revoke of this window is
    // pending.
    RevokeResult revoke(std::uint32_t number, TcpEndpoint& waiter, std::uint64_t context) noexcept;

  private:
    std::uint32_t slot(std::uint32_t number) const noexcept {
        RTRS_ASSERT(number < count_);
        return first_slot_ + number;
    }
    TcpDomain& domain_;
    TcpRegion& region_;
    std::uint32_t first_slot_;
    std::uint32_t count_;
};

class TcpDomain final : public ProtectionDomain {
  public:
    TcpDomain() noexcept : keys_(Random::from_entropy()) {}
    ~TcpDomain() override { RTRS_ASSERT(revokes_.empty()); }

    std::expected<std::unique_ptr<MemoryRegion>, std::error_code> register_memory(
        MutableBytes memory, Access access) override;
    std::expected<std::unique_ptr<MemoryWindows>, std::error_code> create_windows(
        MemoryRegion& region, std::uint32_t count) override;

    KeyTable& keys() noexcept { return keys_; }

    void add(TcpEndpoint& endpoint);
    static void remove(TcpEndpoint& endpoint) noexcept;

    // Between begin and end, bytes are received straight into the memory behind the slot.
    void begin_placing(std::uint32_t slot) noexcept { keys_.begin_use(slot); }
    void end_placing(std::uint32_t slot) noexcept;
    // A peer invalidates a window. Returns false and does nothing if the key is not a living key of
    // a window, or bytes are being placed under it.
    bool invalidate(Key key) noexcept;

    // The waiter's revoked() is called when nothing is placed behind the slot any more.
    void wait_for_placing(std::uint32_t slot, TcpEndpoint& waiter, std::uint64_t context) noexcept;
    // Removes a revoke of the waiter's that has taken effect, and returns its context.
    std::optional<std::uint64_t> take_revoked(const TcpEndpoint& waiter) noexcept;
    bool revoking(std::uint32_t slot) const noexcept;

  private:
    // Exists from post_revoke() until the endpoint has reported it.
    struct Revoke {
        std::uint32_t slot;
        bool effective;
        TcpEndpoint* waiter;
        std::uint64_t context;
    };

    KeyTable keys_;
    IntrusiveList<TcpEndpoint> endpoints_;
    // Has a place for each endpoint: an endpoint places bytes behind one slot at a time, and behind
    // none any more after that slot was revoked.
    std::vector<Revoke> revokes_;
};

}  // namespace rtrs::tcp
