#include "rnbd-server/parting_flush.h"

#include <cerrno>
#include <chrono>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

using namespace std::chrono_literals;

constexpr rtrs::Duration quick = 1s;
// The same as at the server's end: more than a busy disk takes for a flush.
constexpr rtrs::Duration flush_timeout = 20s;

}  // namespace

void PartingFlush::begin(std::function<std::error_code()> flush, std::string from,
                         rtrs::Instant now) {
    RTRS_ASSERT(!under_way_ && flush);
    under_way_ = true;
    from_ = std::move(from);
    begun_ = now;
    until_ = now + flush_timeout;
    auto call = rtrs::DetachedCall<std::error_code>::start(std::move(flush), "rnbd-parting");
    if (call) {
        call_ = std::move(*call);
    } else {
        not_started_ = call.error();
    }
}

bool PartingFlush::takes_long(rtrs::Instant now) const noexcept { return now >= begun_ + quick; }

std::optional<std::error_code> PartingFlush::take_result(rtrs::Instant now) {
    RTRS_ASSERT(under_way_);
    const bool over = !call_ || call_->is_over();
    if (!over && now < until_) return std::nullopt;
    const std::error_code result = !over   ? rtrs::from_errno(ETIMEDOUT)
                                   : call_ ? call_->result()
                                           : not_started_;
    call_.reset();
    under_way_ = false;
    return result;
}

}  // namespace rnbd
