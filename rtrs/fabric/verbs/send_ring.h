// The send contexts of one connection: what was posted to the send queue and is not yet known to be
// done, oldest first.
//
// Only some work requests are posted to the device as signalled: those whose owner asked for it,
// and at least every interval-th. A completion releases all contexts up to its own, because a
// reliable connection executes its send queue in order. So nothing is released before the device
// has said that it, or something posted after it, is done. The send queue cannot overflow, because
// there is a context for each of its places.
//
// Without a free context a post is refused, and tried again after a completion. Among any interval
// contexts at least one is signalled. So when all contexts are taken a completion is always on its
// way, and a chain of up to capacity - interval work requests gets its turn.
//
// Pure; no allocation after construction. The same thread posts and takes completions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "rtrs/base/assert.h"

namespace rtrs::verbs {

class VerbsWindow;

struct SendContext {
    enum class Kind : std::uint8_t { work, revoke };
    // Whether the owner wants to be told of success.
    enum class Report : std::uint8_t { failure_only, always };
    std::uint64_t context = 0;
    Kind kind = Kind::work;
    Report report = Report::failure_only;
    VerbsWindow* window = nullptr;  // for a revoke
};

class SendRing {
  public:
    static constexpr std::uint32_t interval_max = 32;

    enum class Signalled : std::uint8_t { no, yes };
    struct Posted {
        std::uint64_t number = 0;  // counts from 0; names the work in its completion
        Signalled signalled = Signalled::no;
    };

    // capacity: 1 or more.
    explicit SendRing(std::uint32_t capacity)
        : capacity_(capacity),
          interval_(std::clamp(capacity / 4, 1u, interval_max)),
          contexts_(std::make_unique_for_overwrite<SendContext[]>(capacity)) {
        RTRS_ASSERT(capacity > 0);
    }

    std::uint32_t capacity() const noexcept { return capacity_; }
    std::uint32_t interval() const noexcept { return interval_; }
    std::uint32_t used() const noexcept { return static_cast<std::uint32_t>(tail_ - head_); }
    std::uint32_t free() const noexcept { return capacity_ - used(); }
    bool empty() const noexcept { return head_ == tail_; }

    // Takes a context. ASSUMES: free() > 0.
    Posted push(const SendContext& context) noexcept {
        RTRS_ASSERT(free() > 0);
        contexts_[tail_ % capacity_] = context;
        Posted posted{tail_++, Signalled::no};
        ++unsignalled_;
        if (signal_all_ || context.report == SendContext::Report::always ||
            unsignalled_ == interval_) {
            posted.signalled = Signalled::yes;
            unsignalled_ = 0;
        }
        return posted;
    }

    // Whether everything that is pushed from now on is signalled.
    void signal_all(bool on) noexcept { signal_all_ = on; }
    // The number of what is pushed next.
    std::uint64_t next() const noexcept { return tail_; }
    // It was pushed and is not yet known to be done.
    bool waits(std::uint64_t number) const noexcept { return head_ <= number && number < tail_; }

    // A completion of work `number` came: visit(context, number) is called for every context up to
    // it, oldest first, each already released. A completion of a context that was already released
    // is ignored; then nothing is visited. False: there never was such work.
    template <typename Visit>
    bool complete(std::uint64_t number, Visit visit) {
        if (number >= tail_) return false;
        while (head_ <= number) {
            const std::uint64_t at = head_++;
            visit(SendContext(contexts_[at % capacity_]), at);
        }
        return true;
    }

    // The connection is over: visit(context) is called for all remaining contexts, oldest first.
    template <typename Visit>
    void flush(Visit visit) {
        while (head_ != tail_) visit(SendContext(contexts_[head_++ % capacity_]));
    }

  private:
    std::uint32_t capacity_;
    std::uint32_t interval_;
    std::unique_ptr<SendContext[]> contexts_;
    std::uint64_t head_ = 0;
    std::uint64_t tail_ = 0;
    std::uint32_t unsignalled_ = 0;
    bool signal_all_ = false;
};

}  // namespace rtrs::verbs
