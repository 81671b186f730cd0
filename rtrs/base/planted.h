// Bugs that are planted on purpose, so that the simulator can show that it would find them.
//
// In the product, planted() is false at compile time and leaves no trace. The core is compiled a
// second time with RTRS_PLANTED for the simulator (tests/sim), where one bug can be chosen.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace rtrs {

enum class PlantedBug : std::uint8_t {
    none,
    admission_off,          // every attempt runs, even stale and repeated ones
    quarantine_off,         // a request leaves a lost path before its endpoints have drained
    takeover_off,           // a new session does not wait for the old one of the same client
    lock_off,               // storage is opened while an older process still has I/O on it
    permit_reused_early,    // a permit whose request was given up is not fenced
    volume_opened_early,    // ... is, but its volume is opened before the answer
    retry_not_waiting,      // a retry runs while the first attempt is still in the storage
    flush_forgotten,        // nobody is told that unflushed writes were lost
    heartbeat_never_fires,  // a silent peer is never noticed
    answer_buffer_early,    // an answer's memory is used again before it has been sent
    question_ends_probe,    // a peer that asks because it hears nothing counts as answering
    connection_unasked,     // a connection on which nothing comes is not asked
};

inline constexpr std::array<std::pair<PlantedBug, std::string_view>, 12> planted_bug_names{{
    {PlantedBug::admission_off, "admission-off"},
    {PlantedBug::quarantine_off, "quarantine-off"},
    {PlantedBug::takeover_off, "takeover-off"},
    {PlantedBug::lock_off, "lock-off"},
    {PlantedBug::permit_reused_early, "permit-reused-early"},
    {PlantedBug::volume_opened_early, "volume-opened-early"},
    {PlantedBug::retry_not_waiting, "retry-not-waiting"},
    {PlantedBug::flush_forgotten, "flush-forgotten"},
    {PlantedBug::heartbeat_never_fires, "heartbeat-never-fires"},
    {PlantedBug::answer_buffer_early, "answer-buffer-early"},
    {PlantedBug::question_ends_probe, "question-ends-probe"},
    {PlantedBug::connection_unasked, "connection-unasked"},
}};

#ifdef RTRS_PLANTED
inline PlantedBug planted_bug = PlantedBug::none;
inline bool planted(PlantedBug bug) noexcept { return planted_bug == bug; }
#else
constexpr bool planted(PlantedBug) noexcept { return false; }
#endif

}  // namespace rtrs
