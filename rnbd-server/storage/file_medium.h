// The file or block device under a FileStorage: it is found, created, locked, measured, and
// measured again when it is resized.
//
// OWNER: FileStorage. THREAD: any; one at a time.
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
#include "rnbd-server/storage/stat_thread.h"
#include "rnbd-server/storage_options.h"
#include "rtrs/base/descriptor.h"

namespace rnbd {

class FileMedium {
  public:
    enum class Kind : std::uint8_t { regular, block_device };

    // Opens options.path, creates it if a size is given and nothing is there, and takes the lock;
    // without the lock, nothing that is there is changed. not_wanted: once a stop is requested,
    // nothing is made any more.
    // ERRORS: as open_storage(), ECANCELED (a stop was requested).
    static std::expected<FileMedium, StorageError> open(const StorageOptions& options,
                                                        const std::stop_token& not_wanted = {});
    FileMedium(FileMedium&&) = default;
    FileMedium& operator=(FileMedium&&) = delete;
    ~FileMedium();

    int fd() const noexcept { return fd_.get(); }
    // A second descriptor of the same medium that is used only for flushing. The system reports a
    // failure to write back once to each open file, so it reports it to this one also if fd() was
    // told already. -1: there is none, because the medium is not written to or is a file on FUSE.
    int witness() const noexcept { return witness_.get(); }
    // The descriptor for flushes, so that they are told also of a failure that was reported to a
    // write with FUA.
    int sync_fd() const noexcept { return witness_ ? witness() : fd(); }
    Kind kind() const noexcept { return kind_; }
    // True if open() created the file.
    bool was_created() const noexcept { return was_created_; }
    // True for a regular file whose blocks are only in memory, so that reads and writes wait for no
    // disk. This is the state at the time of opening: a machine without swap may have got some
    // since.
    bool in_memory() const noexcept { return in_memory_; }
    // True for direct I/O to a device whose completions can be polled for. Never for a file: on XFS
    // ftruncate(2) waits for direct I/O, even to grow a file, and a thread that waits there cannot
    // poll.
    bool can_be_polled() const noexcept { return can_be_polled_; }
    const std::string& path() const noexcept { return path_; }
    const StorageGeometry& geometry() const noexcept { return geometry_; }
    // True if no other machine or process has to be waited for, as it is with NFS or FUSE.
    bool answers_at_once() const noexcept { return answers_at_once_; }
    // ENOENT: the path no longer leads to the medium that was opened, or the device has got another
    // disk. Does not wait: if the file system may have to be waited for, the result is what was
    // found since the last call, and the call begins another look if none is under way.
    std::error_code check() noexcept;
    // For how many calls of check() the look that is under way has brought no result.
    std::uint32_t unheard_checks() const noexcept { return unheard_checks_; }
    // A read has found the end there: what check() would find only in up to a second, when a write
    // may have moved the end back.
    void ended_at(std::uint64_t bytes);
    // The size to which others have cut the file or device, as check() or a read has found: what
    // was beyond is lost. It stays until the medium is resized.
    std::uint64_t cut_at() const noexcept { return cut_at_; }
    // As measure(), but the size that the last check() or a read has found.
    std::optional<std::uint64_t> last_measured() const noexcept { return seen_bytes_; }
    // The descriptors to close in a place where that may wait; the destructor does not close them
    // then.
    std::vector<int> let_go_of_slow() noexcept;
    // As the functions of Storage.
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
    void found(const StatThread::Result& seen) noexcept;
    void note_size(std::optional<std::uint64_t> bytes) noexcept;
    bool is_what_was_opened(const StatThread::Result& seen) const noexcept;
    Step measure_regular(const StorageOptions& options);
    Step measure_device(const StorageOptions& options);
    Step try_direct(const StorageOptions& options);
    std::unexpected<StorageError> failure(int error, std::string_view what) const;
    std::unexpected<StorageError> read_only_device() const;

    std::string path_;
    rtrs::Descriptor fd_;  // closed after the witness, because closing it releases the lock
    rtrs::Descriptor witness_;
    Kind kind_ = Kind::regular;
    bool was_created_ = false;
    dev_t device_ = 0;                         // the device of the file, or the block device itself
    ino_t inode_ = 0;                          // of a regular file
    std::optional<std::uint64_t> attachment_;  // of a block device; none: not known
    bool in_memory_ = false;
    bool can_be_polled_ = false;
    StorageGeometry geometry_;
    // The state of check().
    bool answers_at_once_ = false;  // see answers_at_once()
    std::shared_ptr<StatThread> stat_thread_;
    std::shared_ptr<StatThread::Request> stat_;  // the look that is under way
    std::uint32_t unheard_checks_ = 0;
    std::error_code verdict_;
    std::optional<std::uint64_t> seen_bytes_;
    std::uint64_t cut_at_ = not_cut;
    static constexpr std::uint64_t not_cut = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace rnbd
