// A second io_uring, for direct I/O to devices that are asked whether it has ended instead of
// raising an interrupt (IORING_SETUP_IOPOLL). Nothing ends in it unless somebody looks.
//
// OWNER: Reactor. THREAD: the reactor's.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <system_error>

namespace rtrs {

class PolledRing {
  public:
    PolledRing() = default;
    ~PolledRing();
    PolledRing(const PolledRing&) = delete;
    PolledRing& operator=(const PolledRing&) = delete;

    // entries: 1..32768. ERRORS: EINVAL (unknown to this kernel), ENOMEM.
    std::error_code open(std::uint32_t entries);
    bool is_open() const noexcept { return open_; }

    // When all are taken, what is prepared is submitted first.
    io_uring_sqe* next_entry() noexcept;
    // Gives the kernel what is prepared, and asks the devices once. Waits for nothing.
    void look() noexcept;
    // Entries that the kernel was not given yet.
    unsigned prepared() const noexcept { return ring_.sq.sqe_tail - ring_.sq.sqe_head; }
    // These are not begun any more. How many there were.
    unsigned forget_prepared() noexcept;
    std::uint32_t in_flight() const noexcept { return in_flight_; }
    bool has_news() noexcept { return io_uring_cq_ready(&ring_) > 0; }
    struct Ended {
        void* data;  // of the entry
        std::int32_t result;
    };
    // The oldest that has ended. ASSUMES: has_news().
    Ended take() noexcept;

  private:
    io_uring ring_{};
    bool open_ = false;
    std::uint32_t in_flight_ = 0;  // and prepared
};

}  // namespace rtrs
