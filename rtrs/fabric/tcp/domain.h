// Registered memory of the TCP fabric: a domain's regions and windows, and who is placing bytes
// into them right now.
//
// A socket is received straight into remote-writable memory for large payloads. A key that is
// revoked meanwhile is dead at once for everything new; the connection that is in the middle of
// such a payload fails, and the revoke is effective (completed) when the ring let go of the memory.
//
// THREAD: the fabric's. A domain outlives its regions, windows and endpoints; regions and windows
// are destroyed while no payload is being received into them (after the endpoints drained).
#pragma once

#include <cstdint>

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

// In a list while its revoke waits: first the domain's, then that of the endpoint that tells.
class TcpWindow final : public MemoryWindow, public ListLink {
  public:
    TcpWindow(TcpDomain& domain, TcpRegion& region, std::uint32_t slot) noexcept
        : domain_(domain), region_(region), slot_(slot) {}
    ~TcpWindow() override;
    Key key() const noexcept override { return key_; }

    // Whether bind() may be called for it. ERRORS: EINVAL (outside of the region), EBUSY (bytes are
    // still being placed under the last key).
    std::error_code check_bind(const Segment& range) const noexcept;
    void bind(const Segment& range) noexcept;
    // pending: waiter's revoked() comes later. ASSUMES: no revoke of this window is pending.
    RevokeResult revoke(TcpEndpoint& waiter, std::uint64_t context) noexcept;
    std::uint64_t revoke_context() const noexcept { return revoke_context_; }

  private:
    friend class TcpDomain;
    TcpDomain& domain_;
    TcpRegion& region_;
    std::uint32_t slot_;
    Key key_ = 0;
    TcpEndpoint* waiter_ = nullptr;
    std::uint64_t revoke_context_ = 0;
};

class TcpDomain final : public ProtectionDomain {
  public:
    TcpDomain() noexcept : keys_(Random::from_entropy()) {}
    ~TcpDomain() override = default;

    std::expected<std::unique_ptr<MemoryRegion>, std::error_code> register_memory(
        MutableBytes memory, Access access) override;
    std::expected<std::unique_ptr<MemoryWindow>, std::error_code> create_window(
        MemoryRegion& region) override;

    KeyTable& keys() noexcept { return keys_; }

    void add(TcpEndpoint& endpoint) noexcept;
    static void remove(TcpEndpoint& endpoint) noexcept;

    // Bytes are received straight into the memory behind slot, from begin to end.
    void begin_placing(std::uint32_t slot) noexcept { keys_.begin_use(slot); }
    void end_placing(std::uint32_t slot) noexcept;
    // A peer ends a window. False, and nothing done: no living key of a window, or bytes are being
    // placed under it.
    bool invalidate(Key key) noexcept;

  private:
    friend class TcpWindow;
    void wait_for_placing(TcpWindow& window) noexcept;

    KeyTable keys_;
    IntrusiveList<TcpEndpoint> endpoints_;
    IntrusiveList<TcpWindow> revoking_;
};

}  // namespace rtrs::tcp
