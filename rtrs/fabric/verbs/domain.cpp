#include "rtrs/fabric/verbs/domain.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rtrs::verbs {
namespace {

int flags_for(Access access) noexcept {
    // Local write: every region may be the target of receives, and bear windows for remote writes.
    int flags = IBV_ACCESS_LOCAL_WRITE;
    if (allows(access, Access::remote_write)) flags |= IBV_ACCESS_REMOTE_WRITE;
    if (allows(access, Access::remote_read)) flags |= IBV_ACCESS_REMOTE_READ;
    return flags;
}

std::error_code unsupported_or(int error) noexcept {
    return from_errno(error == ENOSYS || error == EINVAL ? EOPNOTSUPP : error);
}

}  // namespace

VerbsRegion::~VerbsRegion() {
    domain_.forget(*this);
    let_go();
}

std::error_code VerbsRegion::take_up(ibv_pd* domain, bool with_windows) noexcept {
    region_ = ibv_reg_mr(domain, memory_.data(), memory_.size(),
                         flags_ | (with_windows ? IBV_ACCESS_MW_BIND : 0));
    return region_ == nullptr ? from_errno(errno) : std::error_code{};
}

void VerbsRegion::let_go() noexcept {
    if (region_ != nullptr) (void)ibv_dereg_mr(std::exchange(region_, nullptr));
}

VerbsWindow::~VerbsWindow() {
    RTRS_ASSERT(state_ != State::revoking);
    let_go();
}

VerbsWindows::~VerbsWindows() { IntrusiveList<VerbsWindows>::remove(*this); }

void VerbsWindow::let_go() noexcept {
    RTRS_ASSERT(state_ != State::revoking);
    if (window_ != nullptr) (void)ibv_dealloc_mw(std::exchange(window_, nullptr));
    state_ = State::revoked;
}

std::error_code VerbsWindow::check_bind(const Segment& range) const noexcept {
    if (!region_.contains(range) || range.bytes == 0) return from_errno(EINVAL);
    if (state_ == State::revoking) return from_errno(EBUSY);
    return window_ == nullptr ? from_errno(ENOMEM) : std::error_code{};
}

std::error_code VerbsWindow::bind(ibv_qp* queue, const Segment& range, std::uint64_t work_id,
                                  unsigned send_flags) noexcept {
    ibv_mw_bind bind{};
    bind.wr_id = work_id;
    bind.send_flags = send_flags;
    bind.bind_info.mr = region_.get();
    bind.bind_info.addr = reinterpret_cast<std::uint64_t>(range.data);
    bind.bind_info.length = range.bytes;
    bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (const int error = ibv_bind_mw(queue, window_, &bind)) return from_errno(error);
    state_ = State::bound;
    return {};
}

std::error_code VerbsWindow::unbind(ibv_qp* queue, std::uint64_t work_id) noexcept {
    ibv_mw_bind bind{};
    bind.wr_id = work_id;
    bind.send_flags = IBV_SEND_SIGNALED;
    // No bytes, and still the region: rxe's library looks into it.
    bind.bind_info.mr = region_.get();
    bind.bind_info.addr = reinterpret_cast<std::uint64_t>(region_.data());
    const int error = ibv_bind_mw(queue, window_, &bind);
    return error == 0 ? std::error_code{} : from_errno(error);
}

void VerbsWindow::replace() noexcept {
    if (window_ != nullptr) (void)ibv_dealloc_mw(window_);
    window_ = ibv_alloc_mw(domain_.get(), IBV_MW_TYPE_1);
    state_ = State::revoked;
}

std::expected<std::unique_ptr<VerbsDomain>, std::error_code> VerbsDomain::create(
    std::shared_ptr<Engine> engine) {
    if (const auto error = engine->usable()) return std::unexpected(error);
    ibv_pd* domain = ibv_alloc_pd(engine->device());
    if (domain == nullptr) return std::unexpected(from_errno(errno));
    return std::unique_ptr<VerbsDomain>(new VerbsDomain(std::move(engine), domain));
}

VerbsDomain::~VerbsDomain() {
    IntrusiveList<VerbsDomain>::remove(*this);
    if (domain_ != nullptr) (void)ibv_dealloc_pd(domain_);
}

void VerbsDomain::let_go() noexcept {
    windows_.for_each([](VerbsWindows& windows) { windows.let_go(); });
    for (VerbsRegion* region : regions_) region->let_go();
    if (domain_ != nullptr) (void)ibv_dealloc_pd(std::exchange(domain_, nullptr));
}

std::error_code VerbsDomain::take_up() {
    domain_ = ibv_alloc_pd(engine_->device());
    if (domain_ == nullptr) return from_errno(errno);
    takes_windows_ = true;
    for (VerbsRegion* region : regions_) {
        if (const auto error = register_region(*region)) return error;
    }
    windows_.for_each([](VerbsWindows& windows) { windows.replace(); });
    return {};
}

std::error_code VerbsDomain::register_region(VerbsRegion& region) {
    if (takes_windows_) {
        const auto error = region.take_up(domain_, true);
        if (!error) return {};
        if (error == from_errno(ENOMEM)) return without_memory(region);
    }
    if (const auto error = region.take_up(domain_, false)) {
        return error == from_errno(ENOMEM) ? without_memory(region) : error;
    }
    // Only this flag was in the way: the device has no windows.
    takes_windows_ = false;
    return {};
}

std::error_code VerbsDomain::without_memory(const VerbsRegion& region) {
    engine_->tell_no_memory(region.bytes());
    return from_errno(ENOMEM);
}

std::expected<std::unique_ptr<MemoryRegion>, std::error_code> VerbsDomain::register_memory(
    MutableBytes memory, Access access) {
    if (memory.empty()) return std::unexpected(from_errno(EINVAL));
    if (const auto error = engine_->usable()) return std::unexpected(error);
    auto owned = std::make_unique<VerbsRegion>(*this, memory, flags_for(access));
    if (const auto error = register_region(*owned)) return std::unexpected(error);
    regions_.push_back(owned.get());
    return owned;
}

std::expected<std::unique_ptr<MemoryWindows>, std::error_code> VerbsDomain::create_windows(
    MemoryRegion& region, std::uint32_t count) {
    if (const auto error = engine_->usable()) return std::unexpected(error);
    if (!takes_windows_) return std::unexpected(from_errno(EOPNOTSUPP));
    auto owned = std::make_unique<VerbsWindows>(*this, static_cast<VerbsRegion&>(region));
    windows_.push_back(*owned);
    for (std::uint32_t i = 0; i < count; ++i) {
        ibv_mw* window = ibv_alloc_mw(domain_, IBV_MW_TYPE_1);
        if (window == nullptr) return std::unexpected(unsupported_or(errno));
        owned->add(window);
    }
    return owned;
}

const VerbsRegion* VerbsDomain::find(const Segment& segment) noexcept {
    if (last_found_ != nullptr && last_found_->contains(segment)) return last_found_;
    const auto found = std::ranges::find_if(
        regions_, [&](const VerbsRegion* region) { return region->contains(segment); });
    if (found == regions_.end()) return nullptr;
    last_found_ = *found;
    return last_found_;
}

void VerbsDomain::forget(VerbsRegion& region) noexcept {
    std::erase(regions_, &region);
    if (last_found_ == &region) last_found_ = nullptr;
}

}  // namespace rtrs::verbs
