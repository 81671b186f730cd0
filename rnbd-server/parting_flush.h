// The last flush of a storage that is gone: what was acknowledged may never get to its medium, and
// nobody else would notice. It may take for ever, so it has a thread of its own, which is waited
// for at most 20 s, while the volume waits for what comes in the storage's place.
//
// OWNER: Volume. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <system_error>

#include "rtrs/base/detached_call.h"
#include "rtrs/base/instant.h"

namespace rnbd {

class PartingFlush {
  public:
    // flush: Storage::flush_aside(), not empty. from: the storage, in words. ASSUMES: none is under
    // way.
    void begin(std::function<std::error_code()> flush, std::string from, rtrs::Instant now);
    // Until its result was taken.
    bool under_way() const noexcept { return under_way_; }
    // Most are quick. True if this one is not, so that somebody may want to hear of it.
    bool takes_long(rtrs::Instant now) const noexcept;
    // It is waited for no longer.
    void give_up(rtrs::Instant now) noexcept { until_ = now; }
    // None: it is still under way. Else its result, once. ERRORS: those of the flush; ETIMEDOUT (it
    // was waited for long enough); EAGAIN (there was no thread for it).
    std::optional<std::error_code> take_result(rtrs::Instant now);
    // The storage of the newest one, in words.
    const std::string& from() const noexcept { return from_; }

  private:
    std::optional<rtrs::DetachedCall<std::error_code>> call_;  // none: it could not start
    std::error_code not_started_;
    bool under_way_ = false;
    std::string from_;
    rtrs::Instant begun_{};
    rtrs::Instant until_{};
};

}  // namespace rnbd
