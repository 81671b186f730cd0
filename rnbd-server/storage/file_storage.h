// A regular file or a block device, accessed by io_uring. If the file is in memory, small reads and
// writes are system calls, unless another request keeps writers of the file waiting.
//
// A request goes through one or more pieces of ring work before it completes:
//
//   read, write      transfer until all bytes are done (short results are continued)
//   flush            fdatasync, one at a time; flushes that come meanwhile share the next one
//   discard          punch a hole -> (device only) BLKDISCARD on a helper thread
//   write_zeroes     punch a hole -> zero the range -> write zeroes; if the space must stay
//                    allocated it starts at the second step, if it must be fast it never comes to
//                    the third
//   with FUA         writes are RWF_DSYNC; the others end with an fdatasync, as do writes to a file
//                    of another machine or process
//
// "->" is taken when the medium does not support the step before; that is remembered.
//
// Reads and plain writes of a block device are polled for, if the device and the reactor support
// it.
//
// Once a flush has failed, all flushes fail until the storage is opened anew, because the page
// cache has forgotten the data that it could not write. This includes files with direct I/O, some
// of which goes through the page cache nevertheless (the rest of a block that is zeroed in part,
// file systems that fall back to it). Only direct I/O to a device leaves nothing in the page cache:
// its flushes fail as long as the flushes of the device do.
//
// OWNER: a Volume. THREAD: as storage.h says; a request's work is done by the ring of the thread
// that submits it. LIFE: storage.h; a handler may destroy the storage if its request was the last.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "rnbd-server/storage.h"
#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/storage/disk_reserve.h"
#include "rnbd-server/storage/file_medium.h"
#include "rnbd-server/storage/mapping.h"
#include "rnbd-server/storage/storage_opening.h"
#include "rnbd-server/storage_options.h"
#include "rtrs/base/helper_thread.h"

namespace rnbd {

class FileStorage final : public Storage {
  public:
    static std::expected<std::unique_ptr<Storage>, StorageError> open(rtrs::Reactor& reactor,
                                                                      DeferredCompletions& deferred,
                                                                      const StorageOptions& options,
                                                                      StorageOpening& begun);
    ~FileStorage() override;

    const StorageGeometry& geometry() const noexcept override { return medium_.geometry(); }
    void submit(BlockRequest& request) override;
    std::function<std::error_code()> flush_aside() override;
    void extents(ExtentsRequest& request) override;
    std::error_code check() noexcept override { return medium_.check(); }
    std::expected<std::uint64_t, StorageError> measure() const override {
        return medium_.measure();
    }
    std::optional<std::uint64_t> last_measured() const noexcept override {
        return medium_.last_measured();
    }
    std::string trouble() const override;
    std::expected<void, StorageError> resize(std::uint64_t bytes) override {
        return medium_.resize(bytes, use_);
    }
    std::expected<void, StorageError> may_resize(std::uint64_t bytes) const override {
        return medium_.may_resize(bytes, use_);
    }
    void when_writes_are_lost(std::function<void()> lost) override { lost_ = std::move(lost); }
    bool was_created() const noexcept override { return medium_.was_created(); }
    std::string description() const override;

  private:
    // How a range is emptied, or the step that a write has reached; kept in BlockRequest::stage.
    enum class Technique : std::uint32_t {
        none,
        punch_hole,
        zero_range,
        discard_call,
        write_zeroes,
        rewrite,        // data that failed with FUA is written again without it
        rewrite_moved,  // the same, after some of the data was written
        ask_witness,    // asks the witness whether something could not be written back
        clear_up,       // removes what a failed zero_range has left behind
    };
    using Operation = rtrs::Operation;
    using Result = rtrs::Operation::Result;

    FileStorage(rtrs::Reactor& reactor, DeferredCompletions& deferred, FileMedium medium,
                Mapping zeroes, const StorageOptions& options);

    // The file in the form in which the ring of this thread knows it.
    rtrs::Reactor::File file(rtrs::Reactor& here);
    void transfer(BlockRequest& request);
    void give_to_disk(BlockRequest* list);
    bool moved_at_once(BlockRequest& request, int flags);
    bool begun_polled(BlockRequest& request, std::uint64_t bytes, int flags);
    void empty_range(BlockRequest& request);
    Technique choose_technique(const BlockRequest& request) const noexcept;
    void write_back(BlockRequest& request);
    void empty_by_kernel(BlockRequest& request);
    void allocate(BlockRequest& request, Technique technique);
    void discard_elsewhere(BlockRequest& request);
    bool run_elsewhere(std::function<void()> work, std::function<void()> done);
    void ask_witness(BlockRequest& request, std::error_code error);
    void clear_up(BlockRequest& request, std::int32_t result);
    void forget(Technique technique) noexcept;
    void synchronize(BlockRequest& request);
    void sync_those_that_wait();
    void transfer_failed(BlockRequest& request, std::error_code error);
    bool uses_page_cache() const noexcept;
    std::error_code cache_broken(std::error_code error);
    void finish_range(BlockRequest& request);
    void finish(BlockRequest& request, std::error_code error);
    std::error_code find_extents(ExtentsRequest& request) const;
    std::expected<StorageExtent, std::error_code> extent_at(std::uint64_t at,
                                                            std::uint64_t end) const;

    static BlockRequest& request_of(Operation& operation) noexcept;
    static bool is_rewrite(const BlockRequest& request) noexcept;
    bool writes_through(const BlockRequest& request) const noexcept;
    static FileStorage& storage_of(BlockRequest& request) noexcept;
    static void on_transferred(Operation& operation, const Result& result);
    static void on_polled(Operation& operation, const Result& result);
    static void on_written_back(Operation& operation, const Result& result);
    static void on_allocated(Operation& operation, const Result& result);
    static void on_synchronized(Operation& operation, const Result& result);
    static void on_cleared_up(Operation& operation, const Result& result);

    // The file's slot in one ring, registered by the first request there.
    struct Slot {
        bool tried = false;
        rtrs::Reactor::FixedFile slot = rtrs::Reactor::FixedFile::none;
    };

    rtrs::Reactor& reactor_;
    FileMedium medium_;
    std::vector<Slot> slots_;  // by the reactor's number in its group
    Mapping zeroes_;           // what write_zeroes writes as data; backed by one page of the system
    StorageOptions::Io io_;
    StorageOptions::Use use_;
    bool can_poll_;
    bool can_punch_hole_;
    bool can_zero_range_ = true;
    bool can_discard_call_;
    // The error with which writing back has failed. The page cache forgets a failure once it was
    // reported, and the data with it; so no later flush may succeed.
    std::error_code broken_;
    std::function<void()> lost_;
    std::optional<DiskReserve> reserve_;  // for direct I/O, if that may be submitted in a turn
    std::uint32_t in_flight_ = 0;
    std::uint32_t long_holders_ = 0;  // those in flight that keep a write of the same file waiting
    // Lists of requests: those that share the fdatasync in flight (it is the first one's), and
    // those that came after it had begun.
    BlockRequest* syncing_ = nullptr;
    BlockRequest* waiting_for_sync_ = nullptr;
    DeferredCompletions& deferred_;
    std::optional<rtrs::HelperThread> helper_;  // for calls that may take long
};

}  // namespace rnbd
