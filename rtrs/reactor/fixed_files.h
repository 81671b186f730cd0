// The table of registered files: made at the first registration, sparse, reused last freed first.
//
// OWNER: Reactor. THREAD: the reactor's.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <expected>
#include <system_error>
#include <vector>

namespace rtrs {

class FixedFiles {
  public:
    FixedFiles(io_uring* ring, std::uint32_t slots) noexcept : ring_(ring), slots_(slots) {}

    // ERRORS: ENOBUFS (no slot left, or none wanted), ENOMEM, EMFILE (RLIMIT_NOFILE is below the
    // table's size).
    std::expected<std::uint32_t, std::error_code> add(int fd);
    void remove(std::uint32_t slot) noexcept;

  private:
    std::error_code make_table();

    io_uring* ring_;
    std::uint32_t slots_;
    bool table_made_ = false;
    std::vector<std::uint32_t> free_;
};

}  // namespace rtrs
