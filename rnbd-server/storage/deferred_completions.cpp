#include "rnbd-server/storage/deferred_completions.h"

#include <cstddef>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

// More than one session's queue depth; beyond it the vector grows once and keeps its size.
constexpr std::size_t entries_reserved = 1024;

}  // namespace

class DeferredCompletions::Queue {
  public:
    explicit Queue(rtrs::Clock& clock)
        : clock_(clock), due_(clock, this, rtrs::member_call<&Queue::run>) {
        entries_.reserve(entries_reserved);
    }
    ~Queue() { RTRS_ASSERT(next_ == entries_.size()); }

    void add(BlockRequest& request, std::error_code error) {
        entries_.push_back({&request, error});
        if (!due_.armed()) due_.arm(clock_.now());
    }

  private:
    struct Entry {
        BlockRequest* request;
        std::error_code error;
    };
    void run();

    rtrs::Clock& clock_;
    rtrs::Timer due_;
    std::vector<Entry> entries_;
    std::size_t next_ = 0;
};

void DeferredCompletions::Queue::run() {
    for (const std::size_t last = entries_.size(); next_ < last;) {
        const Entry entry = entries_[next_++];
        entry.request->completed(*entry.request, entry.error);
    }
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(next_));
    next_ = 0;
}

DeferredCompletions::DeferredCompletions(rtrs::Clock& clock) {
    queues_.push_back(std::make_unique<Queue>(clock));
}

DeferredCompletions::DeferredCompletions(rtrs::Reactor& reactor) : reactor_(&reactor) {
    for (std::uint32_t i = 0; i < reactor.members(); ++i) {
        queues_.push_back(std::make_unique<Queue>(reactor.member(i)));
    }
}

DeferredCompletions::~DeferredCompletions() = default;

void DeferredCompletions::add(BlockRequest& request, std::error_code error) {
    queues_[reactor_ == nullptr ? 0 : reactor_->here().number()]->add(request, error);
}

}  // namespace rnbd
