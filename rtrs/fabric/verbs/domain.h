// Protection domain, memory regions and type 1 memory windows.
//
// Why type 1: its key is valid in the whole domain. A kernel peer expects that of a chunk's key,
// which it uses on any connection of a path. A type 2 key is tied to one queue pair. The price: a
// peer cannot invalidate a type 1 key (send with invalidate of such a key fails the connection).
//
// When the device comes back after a removal, a domain has its regions again, under new keys, and
// its windows, revoked. Nobody can use them in between, since there are no endpoints then.
//
// THREAD: the fabric's. A domain outlives its regions, windows and endpoints.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "rtrs/base/intrusive_list.h"
#include "rtrs/fabric.h"
#include "rtrs/fabric/verbs/engine.h"

namespace rtrs::verbs {

class VerbsDomain;

class VerbsRegion final : public MemoryRegion {
  public:
    VerbsRegion(VerbsDomain& domain, MutableBytes memory, int flags) noexcept
        : domain_(domain), memory_(memory), flags_(flags) {}
    ~VerbsRegion() override;
    Key key() const noexcept override { return region_ == nullptr ? 0 : region_->rkey; }
    std::byte* data() const noexcept override { return memory_.data(); }
    std::uint64_t bytes() const noexcept override { return memory_.size(); }
    // Null while the device is gone.
    ibv_mr* get() const noexcept { return region_; }
    bool contains(const Segment& segment) const noexcept {
        const auto offset = static_cast<std::uint64_t>(segment.data - data());
        return offset <= bytes() && segment.bytes <= bytes() - offset;
    }

    // ERRORS: the device's.
    std::error_code take_up(ibv_pd* domain, bool with_windows) noexcept;
    void let_go() noexcept;

  private:
    VerbsDomain& domain_;
    MutableBytes memory_;
    int flags_;
    ibv_mr* region_ = nullptr;
};

// A window is in an endpoint's list while its revoke waits for a place in the send queue.
class VerbsWindow final : public ListLink {
  public:
    VerbsWindow(VerbsDomain& domain, VerbsRegion& region, ibv_mw* window) noexcept
        : domain_(domain), region_(region), window_(window) {}
    ~VerbsWindow();
    Key key() const noexcept { return window_ == nullptr ? 0 : window_->rkey; }

    // ERRORS: EINVAL (outside of the region), EBUSY (its revoke is not done), ENOMEM (lost).
    std::error_code check_bind(const Segment& range) const noexcept;
    // Posts the bind; key() is the new key from here on. ERRORS: the device's; EOPNOTSUPP.
    std::error_code bind(ibv_qp* queue, const Segment& range, std::uint64_t work_id,
                         unsigned send_flags) noexcept;
    // Posts a bind of no bytes. When it has completed the key is dead, and revoked() is to be
    // called.
    std::error_code unbind(ibv_qp* queue, std::uint64_t work_id) noexcept;
    // Kills the key without a connection: a new window replaces the old one.
    void replace() noexcept;
    // The device has gone.
    void let_go() noexcept;

    bool bound() const noexcept { return state_ == State::bound; }
    void begin_revoke(std::uint64_t context) noexcept {
        state_ = State::revoking;
        revoke_context_ = context;
    }
    void revoked() noexcept { state_ = State::revoked; }
    std::uint64_t revoke_context() const noexcept { return revoke_context_; }

  private:
    enum class State : std::uint8_t { revoked, bound, revoking };
    VerbsDomain& domain_;
    VerbsRegion& region_;
    ibv_mw* window_;  // null: could not be replaced
    State state_ = State::revoked;
    std::uint64_t revoke_context_ = 0;
};

class VerbsWindows final : public MemoryWindows, public ListLink {
  public:
    VerbsWindows(VerbsDomain& domain, VerbsRegion& region) noexcept
        : domain_(domain), region_(region) {}
    ~VerbsWindows() override;
    Key key(std::uint32_t number) const noexcept override { return at(number).key(); }

    void add(ibv_mw* window) { windows_.emplace_back(domain_, region_, window); }
    VerbsWindow& at(std::uint32_t number) noexcept {
        RTRS_ASSERT(number < windows_.size());
        return windows_[number];
    }
    const VerbsWindow& at(std::uint32_t number) const noexcept {
        RTRS_ASSERT(number < windows_.size());
        return windows_[number];
    }
    void replace() noexcept {
        for (VerbsWindow& window : windows_) window.replace();
    }
    // The device has gone.
    void let_go() noexcept {
        for (VerbsWindow& window : windows_) window.let_go();
    }

  private:
    VerbsDomain& domain_;
    VerbsRegion& region_;
    std::deque<VerbsWindow> windows_;  // they stay where they are
};

inline VerbsWindow& window_of(const MemoryWindow& window) noexcept {
    return static_cast<VerbsWindows&>(*window.of).at(window.number);
}

class VerbsDomain final : public ProtectionDomain, public ListLink {
  public:
    // ERRORS: ENOMEM, ENODEV.
    static std::expected<std::unique_ptr<VerbsDomain>, std::error_code> create(
        std::shared_ptr<Engine> engine);
    ~VerbsDomain() override;

    std::expected<std::unique_ptr<MemoryRegion>, std::error_code> register_memory(
        MutableBytes memory, Access access) override;
    std::expected<std::unique_ptr<MemoryWindows>, std::error_code> create_windows(
        MemoryRegion& region, std::uint32_t count) override;

    ibv_pd* get() const noexcept { return domain_; }
    Engine& engine() noexcept { return *engine_; }
    // A region that holds the segment, for local access; null if none does.
    const VerbsRegion* find(const Segment& segment) noexcept;
    void forget(VerbsRegion& region) noexcept;

    // For the engine: gives back everything that belongs to the device, and takes it again from the
    // device's successor. If that fails half way, let_go() gives back what was taken.
    void let_go() noexcept;
    std::error_code take_up();

  private:
    VerbsDomain(std::shared_ptr<Engine> engine, ibv_pd* domain) noexcept
        : engine_(std::move(engine)), domain_(domain) {
        engine_->add(*this);
    }
    std::error_code register_region(VerbsRegion& region);
    std::error_code without_memory(const VerbsRegion& region);

    std::shared_ptr<Engine> engine_;
    ibv_pd* domain_;
    // There are few, and mostly the same one is used again.
    std::vector<VerbsRegion*> regions_;
    VerbsRegion* last_found_ = nullptr;
    IntrusiveList<VerbsWindows> windows_;
    bool takes_windows_ = true;
};

}  // namespace rtrs::verbs
