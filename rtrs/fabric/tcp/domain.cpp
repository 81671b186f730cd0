#include "rtrs/fabric/tcp/domain.h"

#include <algorithm>
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

TcpWindows::~TcpWindows() {
    for (std::uint32_t at = first_slot_; at < first_slot_ + count_; ++at) {
        RTRS_ASSERT(!domain_.revoking(at));
        domain_.keys().give_back(at);
    }
}

Key TcpWindows::key(std::uint32_t number) const noexcept {
    return domain_.keys().key(slot(number));
}

int TcpWindows::check_bind(std::uint32_t number, const Segment& range) const noexcept {
    if (number >= count_) return EINVAL;
    const auto offset = static_cast<std::uint64_t>(range.data - region_.data());
    if (offset > region_.bytes() || range.bytes > region_.bytes() - offset) return EINVAL;
    return domain_.keys().in_use(slot(number)) || domain_.revoking(slot(number)) ? EBUSY : 0;
}

void TcpWindows::bind(std::uint32_t number, const Segment& range) noexcept {
    domain_.keys().enable(slot(number), {range.data, range.bytes}, Access::remote_write);
}

RevokeResult TcpWindows::revoke(std::uint32_t number, TcpEndpoint& waiter,
                                std::uint64_t context) noexcept {
    const std::uint32_t its_slot = slot(number);
    RTRS_ASSERT(!domain_.revoking(its_slot));
    domain_.keys().disable(its_slot);
    if (!domain_.keys().in_use(its_slot)) return RevokeResult::effective;
    domain_.wait_for_placing(its_slot, waiter, context);
    return RevokeResult::pending;
}

std::expected<std::unique_ptr<MemoryRegion>, std::error_code> TcpDomain::register_memory(
    MutableBytes memory, Access access) {
    if (memory.empty()) return std::unexpected(from_errno(EINVAL));
    const auto slot = keys_.take(KeyTable::Kind::region);
    if (!slot) return std::unexpected(slot.error());
    return std::make_unique<TcpRegion>(*this, *slot, memory, access);
}

std::expected<std::unique_ptr<MemoryWindows>, std::error_code> TcpDomain::create_windows(
    MemoryRegion& region, std::uint32_t count) {
    const auto first = keys_.take_row(KeyTable::Kind::window, count);
    if (!first) return std::unexpected(first.error());
    return std::make_unique<TcpWindows>(*this, static_cast<TcpRegion&>(region), *first, count);
}

void TcpDomain::add(TcpEndpoint& endpoint) {
    endpoints_.push_back(endpoint);
    std::size_t places = revokes_.size();
    endpoints_.for_each([&](TcpEndpoint&) { ++places; });
    revokes_.reserve(places);
}
void TcpDomain::remove(TcpEndpoint& endpoint) noexcept {
    IntrusiveList<TcpEndpoint>::remove(endpoint);
}

// The peers in the middle of a payload broke the agreement that a key is theirs no more. Rare, and
// bounded by the connections of one session: so the list is walked.
void TcpDomain::wait_for_placing(std::uint32_t slot, TcpEndpoint& waiter,
                                 std::uint64_t context) noexcept {
    RTRS_ASSERT(revokes_.size() < revokes_.capacity());
    revokes_.push_back({slot, false, &waiter, context});
    endpoints_.for_each([&](TcpEndpoint& endpoint) { endpoint.fail_placing(slot); });
}

bool TcpDomain::revoking(std::uint32_t slot) const noexcept {
    return !revokes_.empty() && std::ranges::find(revokes_, slot, &Revoke::slot) != revokes_.end();
}

std::optional<std::uint64_t> TcpDomain::take_revoked(const TcpEndpoint& waiter) noexcept {
    const auto found = std::ranges::find_if(revokes_, [&](const Revoke& revoke) {
        return revoke.effective && revoke.waiter == &waiter;
    });
    if (found == revokes_.end()) return std::nullopt;
    const std::uint64_t context = found->context;
    revokes_.erase(found);
    return context;
}

void TcpDomain::end_placing(std::uint32_t slot) noexcept {
    keys_.end_use(slot);
    if (keys_.in_use(slot)) return;
    for (Revoke& revoke : revokes_) {
        if (revoke.slot != slot || revoke.effective) continue;
        revoke.effective = true;
        revoke.waiter->revoked();
    }
}

bool TcpDomain::invalidate(Key key) noexcept {
    const std::uint32_t slot = keys_.find(key);
    if (slot == 0 || keys_.kind(slot) != KeyTable::Kind::window) return false;
    if (keys_.in_use(slot)) return false;
    keys_.disable(slot);
    return true;
}

}  // namespace rtrs::tcp
