// Decides which attempts of requests may run: the memory of a server session that makes failover
// safe.
//
// A client sends a request again on another path when it has lost the first one. The first attempt
// may still be in the storage, or arrive later than the second. One record per permit tells the
// attempts apart by the sequence number that each carries:
//
//   Attempt of sequence s, newest so far n     Verdict
//   s < n                                      stale: never runs
//   s = n, running on another path             wait; then as below
//   s = n, done, without response data         answer: with the recorded result
//   s = n, done, with response data            run again, for the data
//   s > n, an older one running                wait, then run
//   s > n                                      run
//
// An attempt without sequence number (s = 0, a kernel client) waits while another attempt of its
// permit runs.
//
// Pure: no clock, no I/O. Attempts belong to the callers and are linked in here while they run or
// wait.
// ASSUMES: an attempt arrives once; two attempts of a permit at a time are of different paths.
// OWNER: ServerSession. Source of the rules: docs/reference/wire-failover.md.
#pragma once

#include <cstdint>
#include <optional>

#include "rtrs/base/assert.h"
#include "rtrs/base/lazy_array.h"
#include "rtrs/base/planted.h"
#include "rtrs/base/rare.h"
#include "rtrs/wire/request.h"

namespace rtrs {

// One arrival of a request. All zero: not under admission.
struct Attempt {
    Sequence sequence;
    bool has_response_data;  // it must run again to be answered again
    bool admitted;           // runs; ended() is owed
    Attempt* next_waiting;
};

class Admission {
  public:
    enum class Verdict : std::uint8_t { run, wait, answer, stale };
    struct Decision {
        Verdict verdict;
        int result = 0;  // answer: the errno of the attempt that ran
    };
    struct Released {
        Attempt* attempt;
        Decision decision;
    };
    struct Statistics {
        std::uint64_t stale = 0;     // late attempts that were refused
        std::uint64_t answered = 0;  // answered from the record
        std::uint64_t waited = 0;    // waited for an earlier attempt
    };

    explicit Admission(std::uint32_t queue_depth) : records_(queue_depth) {}
    explicit operator bool() const noexcept { return static_cast<bool>(records_); }

    Decision arrive(std::uint32_t permit, Attempt& attempt) noexcept {
        attempt.next_waiting = nullptr;
        if (planted(PlantedBug::admission_off)) return {Verdict::run};
        Record& record = records_[permit];
        if (attempt.sequence == 0) return arrive_unsequenced(record, attempt);
        if (attempt.sequence < record.newest) {
            RTRS_RARE(admission_stale);
            ++statistics_.stale;
            return {Verdict::stale};
        }
        if (attempt.sequence > record.newest) {
            record.newest = attempt.sequence;
            record.done = false;
            if (record.running == nullptr) return run(record, attempt);
            RTRS_RARE(admission_newer_waits);
            return wait(record, attempt);
        }
        if (record.running != nullptr) {
            if (planted(PlantedBug::retry_not_waiting)) return {Verdict::run};
            RTRS_RARE(admission_retry_waits);
            return wait(record, attempt);
        }
        return settle(record, attempt);
    }

    // An attempt that ran has ended. Afterwards call next_released() until it returns none.
    void ended(std::uint32_t permit, Attempt& attempt, int result) noexcept {
        if (!attempt.admitted) return;
        Record& record = records_[permit];
        RTRS_ASSERT(record.running == &attempt);
        attempt.admitted = false;
        record.running = nullptr;
        if (attempt.sequence != record.newest || attempt.sequence == 0) return;
        record.done = true;
        record.result = result;
    }

    std::optional<Released> next_released(std::uint32_t permit) noexcept {
        Record& record = records_[permit];
        if (record.waiting == nullptr || record.running != nullptr) return std::nullopt;
        Attempt& attempt = *record.waiting;
        record.waiting = attempt.next_waiting;
        attempt.next_waiting = nullptr;
        if (attempt.sequence < record.newest) {
            RTRS_RARE(admission_stale);
            ++statistics_.stale;
            return Released{&attempt, {Verdict::stale}};
        }
        return Released{&attempt, settle(record, attempt)};
    }

    // The path of a waiting attempt has died: forgets the attempt.
    void drop(std::uint32_t permit, Attempt& attempt) noexcept {
        RTRS_RARE(admission_waiter_dropped);
        Attempt** at = &records_[permit].waiting;
        while (*at != &attempt) at = &(*at)->next_waiting;
        *at = attempt.next_waiting;
        attempt.next_waiting = nullptr;
    }

    // The attempt that runs, or null.
    Attempt* running(std::uint32_t permit) noexcept { return records_[permit].running; }
    const Statistics& statistics() const noexcept { return statistics_; }

  private:
    // All zero: a permit that was never used.
    struct Record {
        Sequence newest;
        Attempt* running;
        Attempt* waiting;  // in the order of arrival
        int result;        // of the newest, if done
        bool done;
    };

    Decision run(Record& record, Attempt& attempt) noexcept {
        record.running = &attempt;
        attempt.admitted = true;
        return {Verdict::run};
    }
    Decision wait(Record& record, Attempt& attempt) noexcept {
        ++statistics_.waited;
        Attempt** at = &record.waiting;
        while (*at != nullptr) at = &(*at)->next_waiting;
        *at = &attempt;
        return {Verdict::wait};
    }
    // Decides about the newest attempt when nothing is in its way. If the record is not done, the
    // attempt that was to run has lost its path.
    Decision settle(Record& record, Attempt& attempt) noexcept {
        if (!record.done) return run(record, attempt);
        if (attempt.has_response_data) {
            RTRS_RARE(admission_read_again);
            return run(record, attempt);
        }
        RTRS_RARE(admission_answered);
        ++statistics_.answered;
        return {Verdict::answer, record.result};
    }
    Decision arrive_unsequenced(Record& record, Attempt& attempt) noexcept {
        if (record.running == nullptr) return run(record, attempt);
        // Only a kernel's client sends a second attempt meanwhile; ours waits until the first has
        // ended.
        return wait(record, attempt);
    }

    LazyArray<Record> records_;
    Statistics statistics_;
};

}  // namespace rtrs
