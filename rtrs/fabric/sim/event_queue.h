// What will happen and when: a binary heap over virtual time. Events of one instant happen in the
// order in which they were scheduled, so a run depends on nothing but its seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "rtrs/base/instant.h"

namespace rtrs::sim {

// Something that events happen to. ASSUMES: it outlives every event scheduled for it.
class EventSink {
  public:
    virtual void on_event(std::uint64_t argument) = 0;

  protected:
    ~EventSink() = default;
};

class EventQueue {
  public:
    struct Event {
        Instant at;
        std::uint64_t sequence;
        EventSink* sink;
        std::uint64_t argument;
    };

    bool empty() const noexcept { return heap_.empty(); }
    Instant next() const noexcept { return heap_.front().at; }
    void push(Instant at, EventSink& sink, std::uint64_t argument) {
        heap_.push_back({at, ++sequence_, &sink, argument});
        std::push_heap(heap_.begin(), heap_.end(), later);
    }
    Event pop() {
        std::pop_heap(heap_.begin(), heap_.end(), later);
        const Event event = heap_.back();
        heap_.pop_back();
        return event;
    }

  private:
    static bool later(const Event& a, const Event& b) noexcept {
        return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }

    std::vector<Event> heap_;
    std::uint64_t sequence_ = 0;
};

}  // namespace rtrs::sim
