#include "rtrs/fabric/tcp/key_table.h"

#include <algorithm>
#include <cerrno>

namespace rtrs::tcp {

KeyTable::KeyTable(Random random) noexcept
    : multiplier_(static_cast<std::uint32_t>(random.next()) | 1),
      start_(static_cast<std::uint32_t>(random.next())),
      spread_(static_cast<std::uint32_t>(random.next()) | 1) {}

std::expected<std::uint32_t, std::error_code> KeyTable::take(Kind kind) try {
    if (slots_.empty()) slots_.emplace_back();  // index 0 is never a key
    if (free_.empty()) {
        if (slots_.size() == slots_max) return std::unexpected(from_errno(ENOMEM));
        // An eighth more instead of twice as much: most tables stop growing soon.
        if (slots_.size() == slots_.capacity()) {
            slots_.reserve(slots_.size() + std::max<std::size_t>(128, slots_.size() / 8));
        }
        slots_.emplace_back();
        free_.reserve(slots_.capacity());  // give_back never allocates
        free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot].kind = kind;
    return slot;
} catch (const std::bad_alloc&) {
    return std::unexpected(from_errno(ENOMEM));
}

void KeyTable::give_back(std::uint32_t slot) noexcept {
    RTRS_ASSERT(!in_use(slot));
    disable(slot);
    free_.push_back(slot);
}

Key KeyTable::enable(std::uint32_t at, MutableBytes memory, Access access) noexcept {
    Slot& slot = slots_[at];
    slot.base = memory.data();
    slot.bytes = memory.size();
    slot.access = access;
    slot.key = generation(at, slot.round++) << index_bits | at;
    return slot.key;
}

// Every step is a bijection modulo 2^generation_bits, hence so is the whole for a fixed slot.
std::uint32_t KeyTable::generation(std::uint32_t slot, std::uint32_t round) const noexcept {
    constexpr std::uint32_t mask = (1u << generation_bits) - 1;
    std::uint32_t x = (round + start_ + slot * spread_) & mask;
    x = (x * multiplier_) & mask;
    x ^= x >> 7;
    x = (x * spread_ + start_) & mask;
    return x;
}

}  // namespace rtrs::tcp
