// The remote keys of one protection domain: which memory a key opens, and for what.
//
// A region or window takes a slot for its life. Enabling the slot gives it a fresh key, disabling
// it kills the key at once. A key is (generation << index_bits | index), so a lookup is one array
// access. Generations of a slot walk a secret permutation, so that a stale key meets its slot again
// only after 2^generation_bits enables, and the next key is not the last one plus one.
//
// THREAD: the fabric's. take() may allocate; nothing else does.
#pragma once

#include <cstdint>
#include <expected>
#include <system_error>
#include <vector>

#include "rtrs/base/assert.h"
#include "rtrs/base/random.h"
#include "rtrs/fabric.h"

namespace rtrs::tcp {

class KeyTable {
  public:
    static constexpr unsigned index_bits = 17;
    static constexpr unsigned generation_bits = 32 - index_bits;
    static constexpr std::uint32_t slots_max = 1u << index_bits;

    explicit KeyTable(Random random) noexcept;

    enum class Kind : std::uint8_t { free, region, window };
    // Takes a slot, which has no key yet. The slot is never 0. kind: not free. ERRORS: ENOMEM (all
    // taken).
    std::expected<std::uint32_t, std::error_code> take(Kind kind);
    // Takes `count` slots in a row and returns the first. Walks the table. ERRORS: ENOMEM (no such
    // row).
    std::expected<std::uint32_t, std::error_code> take_row(Kind kind, std::uint32_t count);
    // Frees the slot and kills its key. ASSUMES: taken, not in use.
    void give_back(std::uint32_t slot) noexcept;

    // Gives the slot a fresh key for memory; an earlier key is dead.
    Key enable(std::uint32_t slot, MutableBytes memory, Access access) noexcept;
    void disable(std::uint32_t slot) noexcept { slots_[slot].key = 0; }

    // The slot that a living key opens; 0: no such key.
    std::uint32_t find(Key key) const noexcept {
        const std::uint32_t slot = key & (slots_max - 1);
        return key != 0 && slot < slots_.size() && slots_[slot].key == key ? slot : 0;
    }
    Kind kind(std::uint32_t slot) const noexcept { return slots_[slot].kind; }
    // The slot's living key; 0: none.
    Key key(std::uint32_t slot) const noexcept { return slots_[slot].key; }
    // The memory at [address, address + bytes) if key opens all of it for wanted, else null.
    std::byte* open(Key key, std::uint64_t address, std::uint64_t bytes,
                    Access wanted) const noexcept {
        const std::uint32_t at = find(key);
        if (at == 0) return nullptr;
        const Slot& slot = slots_[at];
        const std::uint64_t offset = address - reinterpret_cast<std::uint64_t>(slot.base);
        if (!allows(slot.access, wanted) || offset > slot.bytes || bytes > slot.bytes - offset) {
            return nullptr;
        }
        return slot.base + offset;
    }

    // Begin and end of ring work that touches the memory behind the slot.
    void begin_use(std::uint32_t slot) noexcept { ++slots_[slot].uses; }
    void end_use(std::uint32_t slot) noexcept {
        RTRS_ASSERT(slots_[slot].uses > 0);
        --slots_[slot].uses;
    }
    bool in_use(std::uint32_t slot) const noexcept { return slots_[slot].uses > 0; }

  private:
    // 24 bytes: an idle session has 512 of them.
    struct Slot {
        std::byte* base = nullptr;  // free slot: nothing
        std::uint64_t bytes : 48 = 0;
        std::uint64_t round : 16 = 0;  // modulo 2^16, a multiple of what generation() uses
        Key key = 0;                   // 0: dead
        std::uint32_t uses : 28 = 0;   // free slot: the next free one, 0: none
        Access access : 2 = Access::local;
        Kind kind : 2 = Kind::free;
    };
    static_assert(sizeof(Slot) == 24);
    static_assert(generation_bits <= 16);
    std::uint32_t generation(std::uint32_t slot, std::uint32_t round) const noexcept;
    bool grow(std::size_t size);
    void push_free(std::uint32_t slot) noexcept;

    std::vector<Slot> slots_;
    std::uint32_t first_free_ = 0;  // 0: none
    std::uint32_t multiplier_;
    std::uint32_t start_;
    std::uint32_t spread_;
};

}  // namespace rtrs::tcp
