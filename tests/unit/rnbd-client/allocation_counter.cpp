// Counts what operator new is asked for. All plain forms are replaced, so that each delete meets
// its own new under AddressSanitizer too.
#include <cstddef>
#include <cstdlib>
#include <new>

std::size_t allocations = 0;

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    ++allocations;
    return std::malloc(bytes);
}
void* operator new(std::size_t bytes) {
    if (void* at = operator new(bytes, std::nothrow)) return at;
    throw std::bad_alloc();
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
