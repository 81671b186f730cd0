// A thread that takes no signals: those are for the threads of the program.
#pragma once

#include <expected>
#include <functional>
#include <system_error>
#include <thread>

namespace rtrs {

// name: at most 15 bytes, as ps(1) shows it; null: that of the calling thread.
// ERRORS: EAGAIN (no more threads).
std::expected<std::thread, std::error_code> start_thread(std::function<void()> work,
                                                         const char* name = nullptr);

}  // namespace rtrs
