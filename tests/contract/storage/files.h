// What the tests of files share: how one is opened, and another process to open it in.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>

#include "rnbd-server/storage_options.h"

namespace rnbd::testing {

inline constexpr std::uint64_t file_bytes = 1u << 20;

inline StorageOptions file_options(const std::string& path) {
    return {.path = path, .size_bytes = file_bytes, .logical_block_bytes = 4096};
}

inline StorageOptions read_only(StorageOptions options) {
    options.use = StorageOptions::Use::read_only;
    return options;
}

// Runs body in another process, which reports by its exit status.
template <typename Body>
int in_child(Body body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(body());
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace rnbd::testing
