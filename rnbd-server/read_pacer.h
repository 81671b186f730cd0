// Large buffered reads, so many bytes per turn of the loop.
//
// What is in the page cache is read while it is submitted. A whole round of large reads would push
// each other out of the processor's cache before the first one is checksummed and sent; what is
// read in portions is still there. Requests of a portion leave together, as before. A portion is
// not less than it has to be, for a turn has a cost of its own: system calls, a send, a wake-up.
// Those who ask take turns: who has hundreds under way makes nobody else wait for all of them.
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
    // Of a turn; at least one request always goes.
    static constexpr std::uint64_t portion_bytes = 1u << 20;
    // What has no more than this goes at once: it takes little room in the cache, and would wait
    // for all the large ones that others have asked for.
    static constexpr std::uint64_t small_bytes_max = 16u << 10;

    // The reads of one who asks that wait, in the order of their coming. Its owner's; empty when it
    // dies.
    class Line : public rtrs::ListLink {
      private:
        friend class ReadPacer;
        void push(BlockRequest& request) noexcept;
        BlockRequest& pop() noexcept;
        BlockRequest* first_ = nullptr;
        BlockRequest* last_ = nullptr;
    };

    // A request that waited may go now.
    using Go = void (*)(void* context, BlockRequest& request);
    ReadPacer(rtrs::Reactor& reactor, void* context, Go go);
    // Asserts that none waits.
    ~ReadPacer();
    ReadPacer(const ReadPacer&) = delete;
    ReadPacer& operator=(const ReadPacer&) = delete;

    // Large ones now, or later by Go: of a line in their order. ASSUMES: request and line stay in
    // place until then; a line is one pacer's.
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
    rtrs::IntrusiveList<Line> lines_;  // in which somebody waits; whose turn it is first
};

}  // namespace rnbd
