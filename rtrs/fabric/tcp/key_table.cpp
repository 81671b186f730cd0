#include "rtrs/fabric/tcp/key_table.h"

#include <algorithm>
#include <cerrno>

namespace rtrs::tcp {
namespace {

constexpr std::size_t slots_least = 8;
// What a process can address.
constexpr std::uint64_t bytes_max = (std::uint64_t{1} << 48) - 1;

}  // namespace

KeyTable::KeyTable(Random random) noexcept
    : multiplier_(static_cast<std::uint32_t>(random.next()) | 1),
      start_(static_cast<std::uint32_t>(random.next())),
      spread_(static_cast<std::uint32_t>(random.next()) | 1) {}

// Index 0 is never a key.
bool KeyTable::grow(std::size_t size) try {
    if (size > slots_max) return false;
    // An eighth more instead of twice as much: most tables stop growing soon.
    if (size > slots_.capacity()) {
        slots_.reserve(std::max(size, slots_.size() + std::max(slots_least, slots_.size() / 8)));
    }
    slots_.resize(size);
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

std::expected<std::uint32_t, std::error_code> KeyTable::take(Kind kind) {
    if (first_free_ == 0) return take_row(kind, 1);
    const std::uint32_t slot = first_free_;
    first_free_ = slots_[slot].uses;
    slots_[slot].uses = 0;
    slots_[slot].kind = kind;
    return slot;
}

std::expected<std::uint32_t, std::error_code> KeyTable::take_row(Kind kind, std::uint32_t count) {
    RTRS_ASSERT(kind != Kind::free && count > 0);
    const auto taken = [](const Slot& slot) { return slot.kind != Kind::free; };
    std::size_t first = 1;
    if (first_free_ != 0) {
        for (std::size_t end = 1; end < slots_.size() && end - first < count; ++end) {
            if (taken(slots_[end])) first = end + 1;
        }
    } else {
        first = std::max<std::size_t>(1, slots_.size());
    }
    // Free ones at the end are the beginning of a row that is not there yet.
    if (first + count > slots_.size() && !grow(first + count)) {
        return std::unexpected(from_errno(ENOMEM));
    }
    for (std::size_t slot = first; slot < first + count; ++slot) {
        slots_[slot].uses = 0;
        slots_[slot].kind = kind;
    }
    if (first_free_ != 0) {  // some of them may have been in the list
        first_free_ = 0;
        for (std::size_t slot = slots_.size() - 1; slot > 0; --slot) {
            if (!taken(slots_[slot])) push_free(static_cast<std::uint32_t>(slot));
        }
    }
    return static_cast<std::uint32_t>(first);
}

void KeyTable::push_free(std::uint32_t slot) noexcept {
    slots_[slot].kind = Kind::free;
    slots_[slot].uses = first_free_ & (slots_max - 1);
    first_free_ = slot;
}

void KeyTable::give_back(std::uint32_t slot) noexcept {
    RTRS_ASSERT(slots_[slot].kind != Kind::free && !in_use(slot));
    disable(slot);
    push_free(slot);
}

Key KeyTable::enable(std::uint32_t at, MutableBytes memory, Access access) noexcept {
    Slot& slot = slots_[at];
    slot.base = memory.data();
    RTRS_ASSERT(memory.size() <= bytes_max);
    slot.bytes = memory.size() & bytes_max;
    slot.access = access;
    slot.key = generation(at, slot.round) << index_bits | at;
    ++slot.round;
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
