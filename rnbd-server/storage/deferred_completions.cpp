#include "rnbd-server/storage/deferred_completions.h"

#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

// More than one session's queue depth; beyond it the vector grows once and keeps its size.
constexpr std::size_t entries_reserved = 1024;

}  // namespace

DeferredCompletions::DeferredCompletions(rtrs::Clock& clock)
    : clock_(clock),
      due_(clock, this, [](void* self) { static_cast<DeferredCompletions*>(self)->run(); }) {
    entries_.reserve(entries_reserved);
}

DeferredCompletions::~DeferredCompletions() { RTRS_ASSERT(next_ == entries_.size()); }

void DeferredCompletions::add(BlockRequest& request, std::error_code error) {
    entries_.push_back({&request, error});
    if (!due_.armed()) due_.arm(clock_.now());
}

void DeferredCompletions::run() {
    for (const std::size_t last = entries_.size(); next_ < last;) {
        const Entry entry = entries_[next_++];
        entry.request->completed(*entry.request, entry.error);
    }
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(next_));
    next_ = 0;
}

}  // namespace rnbd
