// Paces large buffered reads: a limited number of bytes per turn of the loop.
//
// Data in the page cache is read while the read is submitted. If many large reads were submitted at
// once, they would push each other's data out of the processor's cache before the first one is
// checksummed and sent. If they are submitted in portions, the data is still there. The requests of
// a portion are submitted together, as without a pacer. A portion is not smaller than necessary,
// because each turn has a cost of its own: system calls, a send, a wake-up.
//
// The lines take turns: one with hundreds of requests does not make others wait for all of them.
//
// OWNER: Target. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>

#include "rnbd-server/storage.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/intrusive_list.h"
#include "rtrs/reactor.h"

namespace rnbd {

class ReadPacer {
  public:
    // The limit per turn; at least one request is always submitted.
    static constexpr std::uint64_t portion_bytes = 1u << 20;
    // Requests up to this length are submitted at once: they take little room in the cache, and
    // would otherwise wait for all large reads of others.
    static constexpr std::uint64_t small_bytes_max = 16u << 10;

    // The waiting reads of one asker (a session), in order of arrival. The asker owns it.
    // ASSUMES: it is empty when it is destroyed.
    class Line : public rtrs::ListLink {
      private:
        friend class ReadPacer;
        void push(BlockRequest& request) noexcept;
        BlockRequest& pop() noexcept;
        BlockRequest* first_ = nullptr;
        BlockRequest* last_ = nullptr;
    };

    // Called when a request that waited may be submitted.
    using Go = void (*)(void* context, BlockRequest& request);
    ReadPacer(rtrs::Reactor& reactor, void* context, Go go);
    // Asserts that no request waits.
    ~ReadPacer();
    ReadPacer(const ReadPacer&) = delete;
    ReadPacer& operator=(const ReadPacer&) = delete;

    // Verdict::go: the caller submits the request now. Verdict::wait: Go is called later; the
    // requests of a line keep their order.
    // ASSUMES: request and line stay in place until then; a line is used with one pacer only.
    enum class Verdict : std::uint8_t { go, wait };
    Verdict ask(BlockRequest& request, Line& line);

  private:
    void next_portion();
    void go_on(Line& line);
    bool is_new_turn() noexcept;
    bool fits(const BlockRequest& request) const noexcept;

    rtrs::Reactor& reactor_;
    void* context_;
    Go go_;
    rtrs::Timer next_turn_;
    std::uint64_t turn_ = 0;
    std::uint64_t turn_bytes_ = 0;
    rtrs::IntrusiveList<Line> lines_;  // lines with waiting requests; the next one is first
};

}  // namespace rnbd
