// The disk behind a volume: which write each block holds, which one it would hold after a crash.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rtrs/base/random.h"
#include "tests/sim/failover/history.h"

namespace failover {

class Medium {
  public:
    static constexpr std::uint32_t blocks_max = 16;
    using Snapshot = std::array<Number, blocks_max>;

    explicit Medium(std::uint32_t blocks) : blocks_(blocks) {}

    std::uint32_t blocks() const noexcept { return static_cast<std::uint32_t>(blocks_.size()); }
    Number content(std::uint32_t block) const noexcept { return blocks_[block].content; }
    Number durable(std::uint32_t block) const noexcept { return blocks_[block].durable; }
    // Counts crashes.
    std::uint32_t boot() const noexcept { return boot_; }

    enum class Place : std::uint8_t { cache, stable };
    void write(std::uint32_t block, Number number, Place place) {
        Block& its = blocks_[block];
        its.content = number;
        if (place == Place::stable) {
            its.durable = number;
            its.cached.clear();
        } else if (its.cached.size() < cached_max) {
            its.cached.push_back(number);
        }
    }
    Snapshot snapshot() const noexcept {
        Snapshot taken{};
        for (std::size_t i = 0; i < blocks_.size(); ++i) taken[i] = blocks_[i].content;
        return taken;
    }
    // A flush makes durable what was there when it began.
    void flushed(const Snapshot& began) {
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            Block& its = blocks_[i];
            if (began[i] <= its.durable) continue;
            its.durable = began[i];
            std::erase_if(its.cached, [&](Number number) { return number <= began[i]; });
        }
    }
    // Every block comes back as the durable write or any that was cached over it.
    void crash(rtrs::Random& random) {
        ++boot_;
        for (Block& its : blocks_) {
            const std::uint64_t which = random.below(its.cached.size() + 1);
            if (which > 0) its.durable = its.cached[which - 1];
            its.content = its.durable;
            its.cached.clear();
        }
    }

  private:
    static constexpr std::size_t cached_max = 16;
    struct Block {
        Number content = 0;
        Number durable = 0;
        std::vector<Number> cached;  // landed since, oldest first
    };
    std::vector<Block> blocks_;
    std::uint32_t boot_ = 0;
};

}  // namespace failover
