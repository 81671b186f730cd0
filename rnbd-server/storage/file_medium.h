// The file or block device under a FileStorage: found, created, locked, measured, and measured
// again when it is resized.
//
// OWNER: FileStorage. THREAD: any one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <expected>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/looker.h"
#include "rnbd-server/storage_options.h"
#include "rtrs/base/descriptor.h"

namespace rnbd {

class FileMedium {
  public:
    enum class Kind : std::uint8_t { regular, block_device };

    // Opens options.path, creates it if a size is given and nothing is there, and takes the lock,
    // without which nothing that is there is changed. not_wanted: from then on nothing is made.
    // ERRORS: as open_storage(), ECANCELED (it is not wanted any more).
    static std::expected<FileMedium, StorageError> open(const StorageOptions& options,
                                                        const std::stop_token& not_wanted = {});
    FileMedium(FileMedium&&) = default;
    FileMedium& operator=(FileMedium&&) = delete;
    ~FileMedium();

    int fd() const noexcept { return fd_.get(); }
    // Another open file of the same, which nothing is done with but flushing: of a failure to write
    // back the system tells each open file once, and so this one also when fd() was told. -1: none,
    // as of a medium that is not written to, and of a file on FUSE.
    int witness() const noexcept { return witness_.get(); }
    // What flushes go through, so that what a write with FUA was told they are told, too.
    int sync_fd() const noexcept { return witness_ ? witness() : fd(); }
    Kind kind() const noexcept { return kind_; }
    // By open(): nothing was there.
    bool was_created() const noexcept { return was_created_; }
    // A regular file whose blocks are nowhere but in memory, so that to read and to write it waits
    // for no disk. As it was when it was opened: a machine without swap then may have some since.
    bool in_memory() const noexcept { return in_memory_; }
    // Direct I/O to a device that can be asked whether a request has ended. Not to a file: XFS lets
    // ftruncate(2) wait for it, also to grow, and who waits there cannot ask.
    bool can_be_polled() const noexcept { return can_be_polled_; }
    const std::string& path() const noexcept { return path_; }
    const StorageGeometry& geometry() const noexcept { return geometry_; }
    // No other machine or process has to be waited for, as for a file on NFS or FUSE.
    bool answers_at_once() const noexcept { return answers_at_once_; }
    // ENOENT: the path no longer leads to what was opened, or the device has been given another
    // disk. Waits for nobody: where its file system may have to be waited for this is what was
    // found since the last call, and begins another look if none is under way.
    std::error_code check() noexcept;
    // Of so many calls of check() none has heard of the look that is under way.
    std::uint32_t unheard_checks() const noexcept { return unheard_checks_; }
    // Others have cut the file here, as check() has found: what lay beyond is lost. Until it is
    // resized.
    std::uint64_t cut_at() const noexcept { return cut_at_; }
    // As measure(), as far as the last check() knows.
    std::optional<std::uint64_t> last_measured() const noexcept;
    // What is to be closed where that may wait, for then the destructor does not do it.
    std::vector<int> let_go_of_slow() noexcept;
    // As those of Storage.
    std::expected<std::uint64_t, StorageError> measure() const;
    std::expected<void, StorageError> resize(std::uint64_t bytes, StorageOptions::Use use);
    std::expected<void, StorageError> may_resize(std::uint64_t bytes,
                                                 StorageOptions::Use use) const;

  private:
    explicit FileMedium(std::string path) : path_(std::move(path)) {}

    // Steps of open(); each answers with the error to report.
    using Step = std::expected<void, StorageError>;
    Step open_file(const StorageOptions& options, const std::stop_token& not_wanted);
    void read_without_trace() noexcept;
    Step create_file(const StorageOptions& options, int flags, const std::stop_token& not_wanted);
    Step identify(const StorageOptions& options);
    void open_witness(const StorageOptions& options);
    Step lock(const StorageOptions& options);
    std::unexpected<StorageError> lock_failure(int fd, int error) const;
    Step still_there();
    Step give_new_size(int creating, std::uint64_t bytes);
    void found(const Looker::Seen& seen) noexcept;
    bool is_what_was_opened(const Looker::Seen& seen) const noexcept;
    Step measure_regular(const StorageOptions& options);
    Step measure_device(const StorageOptions& options);
    Step try_direct(const StorageOptions& options);
    std::unexpected<StorageError> failure(int error, std::string_view what) const;
    std::unexpected<StorageError> read_only_device() const;

    std::string path_;
    rtrs::Descriptor fd_;  // closed behind the witness: with it the lock goes
    rtrs::Descriptor witness_;
    Kind kind_ = Kind::regular;
    bool was_created_ = false;
    dev_t device_ = 0;                         // of the file, or the block device itself
    ino_t inode_ = 0;                          // regular only
    std::optional<std::uint64_t> attachment_;  // of a block device; none: not known
    bool in_memory_ = false;
    bool can_be_polled_ = false;
    StorageGeometry geometry_;
    // Of check().
    bool answers_at_once_ = false;  // its file system does
    std::shared_ptr<Looker> looker_;
    std::shared_ptr<Looker::Look> look_;  // under way
    std::uint32_t unheard_checks_ = 0;
    std::error_code verdict_;
    std::optional<std::uint64_t> seen_bytes_;
    std::uint64_t cut_at_ = not_cut;
    static constexpr std::uint64_t not_cut = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace rnbd
