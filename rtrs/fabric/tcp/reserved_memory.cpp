#include "rtrs/fabric/tcp/reserved_memory.h"

#include <sys/mman.h>

#include "rtrs/base/assert.h"

namespace rtrs::tcp {

ReservedMemory::ReservedMemory(std::size_t bytes) noexcept {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    // A huge page would commit 2 MiB at the first touch.
    ::madvise(memory, bytes, MADV_NOHUGEPAGE);
    data_ = static_cast<std::byte*>(memory);
    bytes_ = bytes;
}

ReservedMemory::~ReservedMemory() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
}

std::byte* ReservedMemory::cut_bytes(std::size_t bytes) noexcept {
    std::byte* piece = data_ + cut_;
    cut_ += round_to_page(bytes);
    RTRS_ASSERT(cut_ <= bytes_);
    return piece;
}

}  // namespace rtrs::tcp
