#include "rtrs/fabric/tcp/domain.h"

#include <cerrno>

#include "rtrs/fabric/tcp/endpoint.h"

namespace rtrs::tcp {

TcpRegion::TcpRegion(TcpDomain& domain, std::uint32_t slot, MutableBytes memory,
                     Access access) noexcept
    : domain_(domain),
      slot_(slot),
      memory_(memory),
      key_(domain.keys().enable(slot, memory, access)) {}

// Or written to: then it must not go either.
bool TcpRegion::being_read() const noexcept { return domain_.keys().in_use(slot_); }

TcpRegion::~TcpRegion() { domain_.keys().give_back(slot_); }

TcpWindow::~TcpWindow() { domain_.keys().give_back(slot_); }

std::error_code TcpWindow::check_bind(const Segment& range) const noexcept {
    const auto offset = static_cast<std::uint64_t>(range.data - region_.data());
    if (offset > region_.bytes() || range.bytes > region_.bytes() - offset) {
        return from_errno(EINVAL);
    }
    if (linked() || domain_.keys().in_use(slot_)) return from_errno(EBUSY);
    return {};
}

void TcpWindow::bind(const Segment& range) noexcept {
    key_ = domain_.keys().enable(slot_, {range.data, range.bytes}, Access::remote_write);
}

RevokeResult TcpWindow::revoke(TcpEndpoint& waiter, std::uint64_t context) noexcept {
    RTRS_ASSERT(!linked());
    domain_.keys().disable(slot_);
    if (!domain_.keys().in_use(slot_)) return RevokeResult::effective;
    waiter_ = &waiter;
    revoke_context_ = context;
    domain_.wait_for_placing(*this);
    return RevokeResult::pending;
}

std::expected<std::unique_ptr<MemoryRegion>, std::error_code> TcpDomain::register_memory(
    MutableBytes memory, Access access) {
    if (memory.empty()) return std::unexpected(from_errno(EINVAL));
    const auto slot = keys_.take(KeyTable::Kind::region);
    if (!slot) return std::unexpected(slot.error());
    return std::make_unique<TcpRegion>(*this, *slot, memory, access);
}

std::expected<std::unique_ptr<MemoryWindow>, std::error_code> TcpDomain::create_window(
    MemoryRegion& region) {
    const auto slot = keys_.take(KeyTable::Kind::window);
    if (!slot) return std::unexpected(slot.error());
    return std::make_unique<TcpWindow>(*this, static_cast<TcpRegion&>(region), *slot);
}

void TcpDomain::add(TcpEndpoint& endpoint) noexcept { endpoints_.push_back(endpoint); }
void TcpDomain::remove(TcpEndpoint& endpoint) noexcept {
    IntrusiveList<TcpEndpoint>::remove(endpoint);
}

// The peers in the middle of a payload broke the agreement that a key is theirs no more. Rare, and
// bounded by the connections of one session: so the list is walked.
void TcpDomain::wait_for_placing(TcpWindow& window) noexcept {
    revoking_.push_back(window);
    endpoints_.for_each([&](TcpEndpoint& endpoint) { endpoint.fail_placing(window.slot_); });
}

void TcpDomain::end_placing(std::uint32_t slot) noexcept {
    keys_.end_use(slot);
    if (keys_.in_use(slot)) return;
    revoking_.for_each([&](TcpWindow& window) {
        if (window.slot_ != slot) return;
        IntrusiveList<TcpWindow>::remove(window);
        window.waiter_->revoked(window);
    });
}

bool TcpDomain::invalidate(Key key) noexcept {
    const std::uint32_t slot = keys_.find(key);
    if (slot == 0 || keys_.kind(slot) != KeyTable::Kind::window) return false;
    if (keys_.in_use(slot)) return false;
    keys_.disable(slot);
    return true;
}

}  // namespace rtrs::tcp
