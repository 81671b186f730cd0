#include "rtrs/reactor/polled_ring.h"

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/reactor/enter_result.h"

namespace rtrs {

PolledRing::~PolledRing() {
    if (open_) io_uring_queue_exit(&ring_);
}

std::error_code PolledRing::open(std::uint32_t entries) {
    RTRS_ASSERT(!open_);
    const int result = io_uring_queue_init(entries, &ring_, IORING_SETUP_IOPOLL);
    if (result < 0) return from_errno(result);
    open_ = true;
    return {};
}

io_uring_sqe* PolledRing::next_entry() noexcept {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    while (entry == nullptr) {
        look();
        entry = io_uring_get_sqe(&ring_);
    }
    ++in_flight_;
    return entry;
}

void PolledRing::look() noexcept { RTRS_ASSERT(harmless(io_uring_submit_and_get_events(&ring_))); }

unsigned PolledRing::forget_prepared() noexcept {
    const unsigned forgotten = prepared();
    ring_.sq.sqe_tail = ring_.sq.sqe_head;
    in_flight_ -= forgotten;
    return forgotten;
}

PolledRing::Ended PolledRing::take() noexcept {
    const io_uring_cqe& entry = ring_.cq.cqes[*ring_.cq.khead & ring_.cq.ring_mask];
    const Ended ended{io_uring_cqe_get_data(&entry), entry.res};
    io_uring_cq_advance(&ring_, 1);
    --in_flight_;
    return ended;
}

}  // namespace rtrs
