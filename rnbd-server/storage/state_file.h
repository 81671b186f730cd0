// A small text file of what the server has to know after its end. It is replaced whole: who reads
// it finds what was written last, or what was there before.
//
// THREAD: any one. Blocks.
#pragma once

#include <chrono>
#include <expected>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

#include "rtrs/base/instant.h"

namespace rnbd {

// All of it. ERRORS: ENOENT, and others of opening and reading it.
std::expected<std::string, std::error_code> read_state_file(const std::string& path);
// Durable when it returns without an error. ERRORS: of writing it; then what was there is still
// there.
std::error_code write_state_file(const std::string& path, std::string_view text);

// Does work on a thread of its own, and waits for it for so long; then it goes on by itself, or
// ends with the process: for an end that waits for no disk that hangs. It has to hold what it uses.
// ERRORS: work's, ETIMEDOUT.
std::error_code within(rtrs::Duration patience, std::function<std::error_code()> work);
inline constexpr rtrs::Duration last_patience = std::chrono::seconds(2);

// "server.epochs" in the folder that systemd gives the server (StateDirectory=); empty if it gives
// none.
std::string state_file_path(std::string_view name);

}  // namespace rnbd
