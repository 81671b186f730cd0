// A second io_uring, for direct I/O to devices that are polled for completions instead of raising
// an interrupt (IORING_SETUP_IOPOLL). Nothing completes in it unless somebody looks.
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

    // Returns the next free entry. If all are taken, the prepared ones are submitted first.
    io_uring_sqe* next_entry() noexcept;
    // Submits what is prepared, and polls the devices once. Does not wait.
    void look() noexcept;
    // Number of entries that are not submitted yet.
    unsigned prepared() const noexcept { return ring_.sq.sqe_tail - ring_.sq.sqe_head; }
    // Drops the prepared entries; returns how many there were.
    unsigned forget_prepared() noexcept;
    std::uint32_t in_flight() const noexcept { return in_flight_; }
    bool has_news() noexcept { return io_uring_cq_ready(&ring_) > 0; }
    struct Ended {
        void* data;  // the entry's user data
        std::int32_t result;
    };
    // Removes and returns the oldest completion. ASSUMES: has_news().
    Ended take() noexcept;

  private:
    io_uring ring_{};
    bool open_ = false;
    std::uint32_t in_flight_ = 0;  // including prepared ones
};

}  // namespace rtrs
