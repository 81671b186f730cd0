// Registered memory of a simulated host: domains, regions, windows and the table of their keys.
#pragma once

#include <map>
#include <vector>

#include "rtrs/fabric.h"
#include "rtrs/fabric/sim/ring_queue.h"

namespace rtrs::sim {

class Domain;
class Process;

// The keys of one process. A key consists of a slot and a generation: a slot's old keys stay
// refused until its 12-bit generation wraps around, as on hardware (which has 8 bits).
class KeyTable {
  public:
    struct Entry {
        const Domain* domain = nullptr;
        std::byte* base = nullptr;
        std::uint64_t bytes = 0;
        Access access = Access::local;
        enum class Kind : std::uint8_t { region, window } kind = Kind::region;
        bool valid = false;
        std::uint32_t generation = 0;
    };

    KeyTable(std::uint32_t slots_max, std::uint32_t first_generation) noexcept
        : slots_max_(slots_max), first_generation_(first_generation) {}

    // Returns 0 if all slots are used up.
    std::uint32_t take_slot();
    std::size_t in_use() const noexcept { return slots_.size() - free_.size(); }
    void free_slot(std::uint32_t slot);
    Entry& entry(std::uint32_t slot) { return slots_[slot - 1]; }
    // Gives the slot a key that it has not had recently.
    Key renew(std::uint32_t slot) noexcept;
    Entry* find(Key key, const Domain& domain) noexcept;
    void kill(Key key) noexcept;
    // The memory that the peer's access reaches; null: refused. ASSUMES bytes > 0.
    std::byte* access(const RemoteBuffer& remote, std::uint64_t bytes, Access wanted,
                      const Domain& domain) noexcept;

  private:
    static constexpr std::uint32_t generation_bits = 12;
    Entry* slot_of(Key key) noexcept;

    std::uint32_t slots_max_;
    std::uint32_t first_generation_;
    std::vector<Entry> slots_;
    RingQueue<std::uint32_t> free_;
};

class Region final : public MemoryRegion {
  public:
    Region(Domain& domain, std::uint32_t slot, Key key, MutableBytes memory);
    ~Region() override;
    Key key() const noexcept override { return key_; }
    std::byte* data() const noexcept override { return memory_.data(); }
    std::uint64_t bytes() const noexcept override { return memory_.size(); }

  private:
    Domain& domain_;
    std::uint32_t slot_;
    Key key_;
    MutableBytes memory_;
};

class Windows final : public MemoryWindows {
  public:
    Windows(Domain& domain, MemoryRegion& region) noexcept : domain_(domain), region_(region) {}
    ~Windows() override;
    void add(std::uint32_t slot) { windows_.push_back({slot}); }
    Key key(std::uint32_t number) const noexcept override { return windows_[number].key; }
    // ASSUMES: range lies inside the region.
    void bind(std::uint32_t number, Segment range);
    void revoke(std::uint32_t number) noexcept;

  private:
    struct Window {
        std::uint32_t slot;
        Key key = 0;
    };
    Domain& domain_;
    MemoryRegion& region_;
    std::vector<Window> windows_;
};

class Domain final : public ProtectionDomain {
  public:
    explicit Domain(Process& process) noexcept : process_(process) {}
    ~Domain() override;
    std::expected<std::unique_ptr<MemoryRegion>, std::error_code> register_memory(
        MutableBytes memory, Access access) override;
    std::expected<std::unique_ptr<MemoryWindows>, std::error_code> create_windows(
        MemoryRegion& region, std::uint32_t count) override;

    KeyTable& keys() noexcept;
    Process& process() noexcept { return process_; }
    bool covers(const Segment& segment) const noexcept;

  private:
    friend class Region;
    Process& process_;
    std::multimap<const std::byte*, std::uint64_t> regions_;
};

}  // namespace rtrs::sim
