// Anonymous memory, reserved and committed page by page as it is written.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <expected>
#include <system_error>
#include <utility>

#include "rtrs/base/bytes.h"
#include "rtrs/base/error.h"

namespace rnbd {

class Mapping {
  public:
    enum class Access : std::uint8_t { read_only, read_write };
    // bytes > 0. ERRORS: ENOMEM (address space, or overcommit is forbidden).
    static std::expected<Mapping, std::error_code> make(std::size_t bytes, Access access) {
        const int protection = access == Access::read_only ? PROT_READ : PROT_READ | PROT_WRITE;
        void* memory =
            ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return std::unexpected(rtrs::from_errno(errno));
        return Mapping({static_cast<std::byte*>(memory), bytes});
    }
    Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Mapping() {
        if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    }

    rtrs::MutableBytes bytes() const noexcept { return bytes_; }
    // Keeps the content as far as it fits; the memory may move. bytes > 0.
    // ERRORS: ENOMEM; then nothing has changed.
    std::error_code resize(std::size_t bytes) noexcept {
        void* memory = ::mremap(bytes_.data(), bytes_.size(), bytes, MREMAP_MAYMOVE);
        if (memory == MAP_FAILED) return rtrs::from_errno(errno);
        bytes_ = {static_cast<std::byte*>(memory), bytes};
        return {};
    }

  private:
    explicit Mapping(rtrs::MutableBytes bytes) noexcept : bytes_(bytes) {}
    rtrs::MutableBytes bytes_;
};

}  // namespace rnbd
