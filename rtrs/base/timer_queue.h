// A binary heap of armed timers, on which every Clock is built.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "rtrs/base/clock.h"

namespace rtrs {

class TimerQueue {
  public:
    void arm(Timer& timer, Instant deadline) {
        if (timer.armed()) disarm(timer);
        timer.deadline_ = deadline;
        timer.position_ = heap_.size();
        heap_.push_back(&timer);
        sift_up(timer.position_);
    }

    void disarm(Timer& timer) noexcept {
        if (timer.position_ == due_position) {  // waiting for its turn inside expire()
            timer.position_ = Timer::not_armed;
            for (Timer*& due : due_) {
                if (due == &timer) due = nullptr;
            }
            return;
        }
        const std::size_t hole = timer.position_;
        timer.position_ = Timer::not_armed;
        Timer* last = heap_.back();
        heap_.pop_back();
        if (last == &timer) return;
        place(hole, last);
        sift_up(hole);
        sift_down(last->position_);
    }

    std::optional<Instant> next_deadline() const noexcept {
        if (heap_.empty()) return std::nullopt;
        return heap_.front()->deadline_;
    }

    // Calls every timer that is due at `now`, earliest first. A timer that its handler re-arms for
    // `now` or earlier waits for the next call, so that one call always ends.
    void expire(Instant now) {
        due_.clear();
        while (!heap_.empty() && heap_.front()->deadline_ <= now) {
            Timer* timer = heap_.front();
            disarm(*timer);
            timer->position_ = due_position;
            due_.push_back(timer);
        }
        for (std::size_t i = 0; i < due_.size(); ++i) {
            Timer* timer = due_[i];
            if (timer == nullptr) continue;
            timer->position_ = Timer::not_armed;
            due_[i] = nullptr;
            timer->expired_(timer->context_);
        }
    }

  private:
    static constexpr std::size_t due_position = Timer::not_armed - 1;

    void place(std::size_t at, Timer* timer) noexcept {
        heap_[at] = timer;
        timer->position_ = at;
    }
    void sift_up(std::size_t at) noexcept {
        while (at > 0) {
            const std::size_t parent = (at - 1) / 2;
            if (heap_[parent]->deadline_ <= heap_[at]->deadline_) return;
            swap(parent, at);
            at = parent;
        }
    }
    void sift_down(std::size_t at) noexcept {
        for (;;) {
            std::size_t least = at;
            for (std::size_t child = 2 * at + 1; child <= 2 * at + 2; ++child) {
                if (child < heap_.size() && heap_[child]->deadline_ < heap_[least]->deadline_)
                    least = child;
            }
            if (least == at) return;
            swap(least, at);
            at = least;
        }
    }
    void swap(std::size_t a, std::size_t b) noexcept {
        std::swap(heap_[a], heap_[b]);
        heap_[a]->position_ = a;
        heap_[b]->position_ = b;
    }

    std::vector<Timer*> heap_;
    std::vector<Timer*> due_;
};

}  // namespace rtrs
