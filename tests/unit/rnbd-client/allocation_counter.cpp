// Counts what operator new is asked for.
#include <cstddef>
#include <cstdlib>
#include <new>

std::size_t allocations = 0;

void* operator new(std::size_t bytes) {
    ++allocations;
    if (void* at = std::malloc(bytes)) return at;
    throw std::bad_alloc();
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
