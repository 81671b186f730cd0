// Starts a thread that takes no signals: those are for the program's own threads.
#pragma once

#include <expected>
#include <functional>
#include <system_error>
#include <thread>

namespace rtrs {

// name: at most 15 bytes, shown by ps(1); null: the calling thread's name.
// ERRORS: EAGAIN (no more threads).
std::expected<std::thread, std::error_code> start_thread(std::function<void()> work,
                                                         const char* name = nullptr);

}  // namespace rtrs
