#include "rtrs/fabric/sim/sim_memory.h"

#include "rtrs/base/assert.h"
#include "rtrs/fabric/sim/sim_fabric.h"

namespace rtrs::sim {

std::uint32_t KeyTable::take_slot() {
    // Oldest first, so that a freed slot's keys stay unused for long.
    if (!free_.empty()) return free_.pop_front();
    if (slots_.size() >= slots_max_) return 0;
    slots_.push_back({.generation = first_generation_});
    return static_cast<std::uint32_t>(slots_.size());
}

void KeyTable::free_slot(std::uint32_t slot) {
    entry(slot).valid = false;
    entry(slot).domain = nullptr;
    free_.push_back(slot);
}

Key KeyTable::renew(std::uint32_t slot) noexcept {
    Entry& renewed = entry(slot);
    renewed.generation = (renewed.generation + 1) & ((1u << generation_bits) - 1);
    return (slot << generation_bits) | renewed.generation;
}

KeyTable::Entry* KeyTable::slot_of(Key key) noexcept {
    const std::uint32_t slot = key >> generation_bits;
    if (slot == 0 || slot > slots_.size()) return nullptr;
    Entry& found = entry(slot);
    const bool newest = found.generation == (key & ((1u << generation_bits) - 1));
    return found.valid && newest ? &found : nullptr;
}

KeyTable::Entry* KeyTable::find(Key key, const Domain& domain) noexcept {
    Entry* found = slot_of(key);
    return found != nullptr && found->domain == &domain ? found : nullptr;
}

void KeyTable::kill(Key key) noexcept {
    if (Entry* found = slot_of(key)) found->valid = false;
}

std::byte* KeyTable::access(const RemoteBuffer& remote, std::uint64_t bytes, Access wanted,
                            const Domain& domain) noexcept {
    const Entry* found = find(remote.key, domain);
    if (found == nullptr || !allows(found->access, wanted)) return nullptr;
    const std::uint64_t base = reinterpret_cast<std::uint64_t>(found->base);
    if (remote.address < base || bytes > found->bytes) return nullptr;
    if (remote.address - base > found->bytes - bytes) return nullptr;
    return found->base + (remote.address - base);
}

Region::Region(Domain& domain, std::uint32_t slot, Key key, MutableBytes memory)
    : domain_(domain), slot_(slot), key_(key), memory_(memory) {
    domain_.regions_.emplace(memory_.data(), memory_.size());
}

Region::~Region() {
    auto [at, end] = domain_.regions_.equal_range(memory_.data());
    while (at != end && at->second != memory_.size()) ++at;
    RTRS_ASSERT(at != end);
    domain_.regions_.erase(at);
    domain_.keys().free_slot(slot_);
}

Windows::~Windows() {
    for (const Window& window : windows_) domain_.keys().free_slot(window.slot);
}

void Windows::bind(std::uint32_t number, Segment range) {
    const std::byte* end = region_.data() + region_.bytes();
    RTRS_ASSERT(range.data >= region_.data() && range.data + range.bytes <= end);
    KeyTable& keys = domain_.keys();
    Window& window = windows_[number];
    window.key = keys.renew(window.slot);
    KeyTable::Entry& entry = keys.entry(window.slot);
    entry.domain = &domain_;
    entry.base = range.data;
    entry.bytes = range.bytes;
    entry.access = Access::remote_write;
    entry.kind = KeyTable::Entry::Kind::window;
    entry.valid = true;
}

void Windows::revoke(std::uint32_t number) noexcept { domain_.keys().kill(windows_[number].key); }

Domain::~Domain() { RTRS_ASSERT(regions_.empty()); }

KeyTable& Domain::keys() noexcept { return process_.keys(); }

std::expected<std::unique_ptr<MemoryRegion>, std::error_code> Domain::register_memory(
    MutableBytes memory, Access access) {
    if (memory.empty()) return std::unexpected(from_errno(EINVAL));
    const std::uint32_t slot = keys().take_slot();
    if (slot == 0) return std::unexpected(from_errno(ENOMEM));
    const Key key = keys().renew(slot);
    KeyTable::Entry& entry = keys().entry(slot);
    entry.domain = this;
    entry.base = memory.data();
    entry.bytes = memory.size();
    entry.access = access;
    entry.kind = KeyTable::Entry::Kind::region;
    entry.valid = true;
    return std::make_unique<Region>(*this, slot, key, memory);
}

std::expected<std::unique_ptr<MemoryWindows>, std::error_code> Domain::create_windows(
    MemoryRegion& region, std::uint32_t count) {
    auto windows = std::make_unique<Windows>(*this, region);
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t slot = keys().take_slot();
        if (slot == 0) return std::unexpected(from_errno(ENOMEM));
        windows->add(slot);
    }
    return windows;
}

bool Domain::covers(const Segment& segment) const noexcept {
    if (segment.bytes == 0) return true;
    auto region = regions_.upper_bound(segment.data);
    while (region != regions_.begin()) {
        --region;
        if (segment.data + segment.bytes <= region->first + region->second) return true;
    }
    return false;
}

}  // namespace rtrs::sim
