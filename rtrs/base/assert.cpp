#include "rtrs/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace rtrs {

void assert_failed(const char* condition, const char* file, int line) noexcept {
    std::fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    std::abort();
}

}  // namespace rtrs
