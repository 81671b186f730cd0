// The cache of the medium that an export has: the epoch that clients are told, and what the
// epochs' file is told of the cache's life, from when the medium is found to when it is left.
//
//   begins()         the medium is found. Nobody may write to it yet
//   opened()         somebody may write to it, and clients are told epoch()
//   is_another()     the medium goes on without the writes that were not flushed
//   flushed() or lost()   how it ended; neither: as by a crash
//
// OWNER: Volume. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "rnbd-server/state/epoch_file.h"
#include "rtrs/base/instant.h"

namespace rnbd {

class CacheLife {
  public:
    // The file is written within milliseconds, unless its disk hangs.
    static constexpr rtrs::Duration file_wait_max = std::chrono::seconds(2);

    // epochs: outlives this.
    explicit CacheLife(EpochFile& epochs) : epochs_(epochs) {}

    // epoch: the storage's, as it is told of this medium. The file knows nothing of it: nobody
    // writes to it, or it ends with this process.
    void begins(std::uint64_t epoch) noexcept;
    // The same of a medium that the file keeps by this name.
    void begins(const std::string& medium, std::uint64_t epoch, rtrs::Instant now);
    // Whether the file says that the medium is in use. Until then nobody may write to it,
    // unless that was waited for until noted_by().
    bool is_noted() const noexcept { return epochs_.is_over(ticket_); }
    rtrs::Instant noted_by() const noexcept { return noted_by_; }
    // Ends what begins() began: nobody could write to the medium.
    void was_not_opened();
    void opened();
    // What clients are told: the storage's epoch, or the one of it that the file says to show.
    std::uint64_t epoch() const noexcept { return epoch_; }

    // Writes that were not flushed are lost, and the storage has another epoch since.
    void is_another(std::uint64_t epoch);
    // It is not known which writes are lost, nor whether anybody is told: this life does not end as
    // flushed.
    void sync_has_failed() noexcept { sync_failed_ = true; }
    // Everything is on the medium, and nothing will be written any more.
    void flushed();
    // Whoever has the medium next is told of a loss.
    void lost() { epochs_.lost(medium_); }
    // The medium was left, and this was all that could be done for it. It is not noted as flushed
    // even then: what is found next may be another file with the same uuid.
    void left(bool flush_failed);

  private:
    EpochFile& epochs_;
    std::string medium_;                // empty: not in the file
    std::shared_ptr<const void> held_;  // the file's entry of it
    EpochFile::Ticket ticket_ = 0;      // of the newest opening
    rtrs::Instant noted_by_{};
    std::uint64_t storage_epoch_ = 0;
    std::uint64_t epoch_ = 0;
    bool sync_failed_ = false;
};

}  // namespace rnbd
