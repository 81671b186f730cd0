// For loops that poll memory until another processor has changed it.
#pragma once

namespace rtrs {

// Tells the processor that it is in a wait loop: its other hardware thread runs faster, and it
// draws less power.
inline void relax_processor() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace rtrs
