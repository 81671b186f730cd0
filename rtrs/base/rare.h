// Marks branches that are seldom taken, so that the simulator can show that it took them all.
//
//   RTRS_RARE(admission_stale);
//
// It does nothing in the product. Where RTRS_PLANTED is defined (see planted.h), each passage is
// counted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rtrs {

// All marks, so that one that was never reached can be reported.
#define RTRS_RARE_BRANCHES(X)                                                            \
    X(admission_stale)          /* an attempt older than its permit's newest */          \
    X(admission_retry_waits)    /* a retry came while the first attempt was running */   \
    X(admission_newer_waits)    /* a newer request came while an older was running */    \
    X(admission_answered)       /* answered from the record, without running again */    \
    X(admission_read_again)     /* a read that was done runs again for its data */       \
    X(admission_waiter_dropped) /* its path died while it waited */                      \
    X(fence_sent)               /* a permit with unknown fate was settled */             \
    X(fence_lost)               /* its path died before the answer */                    \
    X(user_permit_doubted)      /* a user message was lost on one of several paths */    \
    X(fenced_over_another)      /* a lost path's end was learnt over another path */     \
    X(failed_over)              /* a request was sent again on another path */           \
    X(resumed)                  /* a request was sent again after the link was back */   \
    X(took_over)                /* a session ended for a newer one of the same client */ \
    X(retired_refused)          /* a session that was taken over came back */            \
    X(superseded)               /* a connect displaced a path that looked alive */       \
    X(succeeded)                /* a path is back before its operations have ended */    \
    X(half_open_expired)        /* a path never said its name */                         \
    X(shaky_path)               /* a path failed too often and was held back */          \
    X(probed)                   /* an old request made its path be probed */             \
    X(probe_failed)             /* ... which was dead */                                 \
    X(small_packets)            /* a path was dialled for small packets */

enum class RareBranch : std::size_t {
#define RTRS_RARE_ENUMERATOR(name) name,
    RTRS_RARE_BRANCHES(RTRS_RARE_ENUMERATOR)
#undef RTRS_RARE_ENUMERATOR
        count
};

inline constexpr std::array<std::string_view, static_cast<std::size_t>(RareBranch::count)>
    rare_branch_names{
#define RTRS_RARE_NAME(name) #name,
        RTRS_RARE_BRANCHES(RTRS_RARE_NAME)
#undef RTRS_RARE_NAME
    };

#ifdef RTRS_PLANTED
inline std::array<std::uint64_t, static_cast<std::size_t>(RareBranch::count)> rare_counts{};
#define RTRS_RARE(name) (++::rtrs::rare_counts[static_cast<std::size_t>(::rtrs::RareBranch::name)])
#else
#define RTRS_RARE(name) static_cast<void>(::rtrs::RareBranch::name)
#endif

}  // namespace rtrs
