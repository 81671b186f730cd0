// What an export keeps its blocks in: the seam between the server's block side and files, block
// devices, memory and nothing.
//
// OWNER: a Volume owns one Storage. THREAD: the reactor's (rtrs/reactor.h). In a ReactorGroup
// requests of several members' threads may be in flight, each at the ring of the one it came on.
// LIFE: open_storage() (storage/open_storage.h) -> submit() ... -> (all requests completed) ->
// destroyed. Destroying it with a request in flight is a bug (asserted).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "rnbd/medium_id.h"
#include "rtrs/base/bytes.h"
#include "rtrs/base/error.h"
#include "rtrs/reactor.h"

namespace rnbd {

enum class BlockOperation : std::uint8_t { read, write, flush, discard, write_zeroes };

class DeferredCompletions;
class Storage;

// One request to a storage; owned by the caller, in place until `completed` is called, which
// happens exactly once and never from inside submit().
struct BlockRequest {
    // error: empty, or the errno of the medium as itself (ENOSPC, EIO, EROFS, EOPNOTSUPP, ...).
    using Completed = void (*)(BlockRequest& request, std::error_code error);

    explicit BlockRequest(Completed handler) noexcept : completed(handler), work(nullptr) {}

    BlockOperation operation = BlockOperation::read;
    bool force_unit_access = false;  // write, write_zeroes, discard: durable before completed
    bool no_unmap = false;           // write_zeroes: keep the blocks allocated
    bool fast_only = false;          // write_zeroes: EOPNOTSUPP rather than writing zeroes slowly
    std::uint64_t offset = 0;        // bytes, multiple of the logical block size
    std::uint64_t bytes = 0;         // multiple of it too; 0 for flush
    // read: target, write: source; `bytes` long. Page aligned in production, so that direct I/O
    // takes it as it is. Unused otherwise.
    rtrs::MutableBytes data{};
    // The slot under which `data` lies inside a buffer that was registered with a reactor, and that
    // reactor's number in its group: it means nothing to another one.
    rtrs::Reactor::FixedBuffer fixed_buffer = rtrs::Reactor::FixedBuffer::none;
    std::uint32_t fixed_buffer_of = 0;
    Completed completed;
    // With an error of what has FUA, which may be all that the medium ever says of what others have
    // written: it is known to be no more than this request's own. The caller clears it, a storage
    // sets it.
    bool failed_alone = false;
    BlockRequest* next = nullptr;  // of those that wait, to be submitted or in the storage

    // The storage's, while it has the request.
    rtrs::Operation work;
    Storage* storage = nullptr;
    std::uint64_t done_bytes = 0;
    std::uint32_t stage = 0;
};

struct StorageGeometry {
    std::uint64_t size_bytes = 0;             // multiple of logical_block_bytes
    std::uint32_t logical_block_bytes = 512;  // 512 or 4096
    std::uint32_t physical_block_bytes = 4096;
    std::uint64_t discard_bytes_max = 0;  // 0: no discard
    std::uint32_t discard_granularity_bytes = 0;
    std::uint64_t write_zeroes_bytes_max = 0;  // 0: none, not even the plain way
    bool fast_zero = false;                    // fast_only requests may succeed
    bool volatile_cache = true;                // acknowledged writes need a flush to be durable
    bool force_unit_access = true;
    bool extents = false;  // extents() may be asked
    // One life of what keeps acknowledged writes until they are flushed. Another number after the
    // storage was opened again: those may be gone. 0: not known.
    std::uint64_t cache_epoch = 0;
    // Which medium it is, as far as that can be told.
    MediumId medium{};
};

struct StorageExtent {
    std::uint64_t bytes = 0;
    bool hole = false;  // not allocated
    bool zero = false;  // reads as zeroes
};

// The question what of a range is allocated; owned by the caller, in place until `completed`, which
// happens exactly once.
struct ExtentsRequest {
    using Completed = void (*)(ExtentsRequest& request, std::error_code error);

    explicit ExtentsRequest(Completed handler) noexcept : completed(handler) {}

    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::size_t extents_max = 1;
    Completed completed;
    // The answer, unless there is an error: in order, covering at least the first block of the
    // range, at most extents_max entries.
    std::vector<StorageExtent> found{};
};

struct StorageError {
    std::error_code code;
    std::string text;  // one line that names the path and what to do
};

class Storage {
  public:
    virtual ~Storage() = default;
    virtual const StorageGeometry& geometry() const noexcept = 0;
    // ASSUMES: offset + bytes <= size_bytes, block aligned, request not in flight (the caller has
    // checked what the peer sent).
    virtual void submit(BlockRequest& request) = 0;
    // A flush of what was acknowledged that needs this storage no more, for another thread, where
    // it may wait as long as it likes. Empty: there is nothing that it could do.
    virtual std::function<std::error_code()> flush_aside() { return {}; }
    // Completes it, possibly from inside. ASSUMES: geometry().extents; the range is as that of a
    // BlockRequest, not empty; extents_max > 0. ERRORS: EIO.
    virtual void extents(ExtentsRequest& request);
    // Whether what it stands on is still there: ENOENT when the file was deleted or the device is
    // gone. Cheap, and waits for nobody: what it says may be what was so at the call before. Asked
    // once a second.
    virtual std::error_code check() noexcept { return {}; }
    // Bytes that the medium has now: not what geometry() says once somebody else has made
    // it larger or smaller. ERRORS: those of asking it.
    virtual std::expected<std::uint64_t, StorageError> measure() const {
        return geometry().size_bytes;
    }
    // The same without waiting, as far as the last check() knows.
    virtual std::optional<std::uint64_t> last_measured() const noexcept {
        return geometry().size_bytes;
    }
    // Makes it so long; geometry() says so then. A block device must have that size already.
    // ASSUMES: a positive multiple of the block; nothing beyond `bytes` is in flight.
    // ERRORS: EINVAL (device of another size), EROFS, ENOMEM, EFBIG, EOPNOTSUPP, ...
    virtual std::expected<void, StorageError> resize(std::uint64_t bytes) {
        return may_resize(bytes);
    }
    // Why resize() is going to refuse that, as far as it is known without trying.
    virtual std::expected<void, StorageError> may_resize(std::uint64_t bytes) const {
        static_cast<void>(bytes);
        return std::unexpected(StorageError{rtrs::from_errno(EOPNOTSUPP),
                                            description() + ": its size cannot be changed"});
    }
    // Calls lost when acknowledged writes turn out to be lost, before any request that came to it
    // meanwhile is completed. Then either all flushes fail from then on, and it is not called
    // again; or geometry() has another cache_epoch, and flushes say nothing of the loss: who has
    // submitted one before it takes its success for a failure. Storages that never know do nothing.
    virtual void when_writes_are_lost(std::function<void()> lost) { static_cast<void>(lost); }
    // What keeps requests waiting at the moment, in words; empty if nothing does.
    virtual std::string trouble() const { return {}; }
    // For the end of the process or of the export, which waits for no other process for ever: what
    // is in flight there completes soon, with EIO, and so does what comes later. Returns what is
    // given up by it, in words. Empty: nothing is in flight, or the kernel has it, which can only
    // be waited for; then nothing has changed.
    virtual std::string give_up() { return {}; }
    // Its file was not there and has been created: nothing is in it.
    virtual bool was_created() const noexcept { return false; }
    // "file /srv/vol1.img", "memory", "null"; "..., delayed on purpose".
    virtual std::string description() const = 0;
};

}  // namespace rnbd
