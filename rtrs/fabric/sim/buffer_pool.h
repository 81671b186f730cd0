// Buffers for copies of payload that is under way, recycled by size.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rtrs::sim {

class BufferPool {
  public:
    using Buffer = std::unique_ptr<std::byte[]>;

    Buffer take(std::uint32_t bytes) {
        std::vector<Buffer>& free = free_[size_class(bytes)];
        if (free.empty()) {
            return std::make_unique_for_overwrite<std::byte[]>(std::size_t{1} << size_class(bytes));
        }
        Buffer buffer = std::move(free.back());
        free.pop_back();
        return buffer;
    }
    // bytes: the same as for take().
    void give(Buffer buffer, std::uint32_t bytes) {
        std::vector<Buffer>& free = free_[size_class(bytes)];
        if (free.size() < kept_max >> (size_class(bytes) / 2)) free.push_back(std::move(buffer));
    }

  private:
    static constexpr std::size_t kept_max = 8192;
    static std::size_t size_class(std::uint32_t bytes) noexcept {
        return static_cast<std::size_t>(std::bit_width(bytes | 255u));
    }
    std::array<std::vector<Buffer>, 33> free_;
};

}  // namespace rtrs::sim
