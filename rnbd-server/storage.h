// Where an export keeps its blocks: the interface between the server's block layer and files, block
// devices, memory, other NBD servers, and nothing at all.
//
// OWNER: a Volume owns one Storage.
// THREAD: the reactor's (rtrs/reactor.h). In a ReactorGroup, requests from the threads of several
// members may be in flight, each at the ring of the member on whose thread it was submitted.
// LIFE: open_storage() (storage/open_storage.h) -> submit() ... -> (all requests completed) ->
// destroyed. Destroying it with a request in flight is a bug (asserted).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
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

// One request to a storage. The caller owns it and keeps it in place until `completed` is called.
// That happens exactly once, and never from inside submit().
struct BlockRequest {
    // error: empty, or the medium's errno unchanged (ENOSPC, EIO, EROFS, EOPNOTSUPP, ...).
    using Completed = void (*)(BlockRequest& request, std::error_code error);

    explicit BlockRequest(Completed handler) noexcept : completed(handler), work(nullptr) {}

    BlockOperation operation = BlockOperation::read;
    bool force_unit_access = false;  // write, write_zeroes, discard: durable before completed
    bool no_unmap = false;           // write_zeroes: keep the blocks allocated
    bool fast_only = false;          // write_zeroes: EOPNOTSUPP instead of writing zeroes slowly
    std::uint64_t offset = 0;        // bytes, a multiple of the logical block size
    std::uint64_t bytes = 0;         // a multiple of the logical block size; 0 for flush
    // The target of a read or the source of a write, `bytes` long; other operations do not use it.
    // It is page aligned in production, so that direct I/O can use it without a copy.
    rtrs::MutableBytes data{};
    // If `data` lies inside a buffer that was registered with a reactor: the slot of that buffer,
    // and the reactor's number in its group. The slot has no meaning for other reactors.
    rtrs::Reactor::FixedBuffer fixed_buffer = rtrs::Reactor::FixedBuffer::none;
    std::uint32_t fixed_buffer_of = 0;
    Completed completed;
    // An error of a request with FUA may be the medium's only report of a failure that also
    // concerns data which others have written. True: the error is known to concern this request
    // alone. The caller clears it, the storage sets it.
    bool failed_alone = false;
    BlockRequest* next = nullptr;  // links requests that wait, to be submitted or in the storage

    // These belong to the storage while it has the request.
    rtrs::Operation work;
    Storage* storage = nullptr;
    std::uint64_t done_bytes = 0;
    std::uint32_t stage = 0;
    std::uint32_t arrived_bytes = 0;  // kind nbd: of the piece of a read that is at the server
};

struct StorageGeometry {
    std::uint64_t size_bytes = 0;             // multiple of logical_block_bytes
    std::uint32_t logical_block_bytes = 512;  // 512 or 4096
    std::uint32_t physical_block_bytes = 4096;
    std::uint64_t discard_bytes_max = 0;  // 0: no discard
    std::uint32_t discard_granularity_bytes = 0;
    std::uint64_t write_zeroes_bytes_max = 0;  // 0: not supported, not even by writing zeroes
    bool fast_zero = false;                    // fast_only requests may succeed
    bool volatile_cache = true;                // acknowledged writes need a flush to be durable
    bool force_unit_access = true;
    bool extents = false;  // extents() may be called
    // Identifies one life of the cache that keeps acknowledged writes until they are flushed. If
    // the number differs after the storage was opened again, these writes may be lost. 0: not
    // known.
    std::uint64_t cache_epoch = 0;
    // The identity of the medium, as far as it is known.
    MediumId medium{};
};

struct StorageExtent {
    std::uint64_t bytes = 0;
    bool hole = false;  // not allocated
    bool zero = false;  // reads as zeroes
};

// Asks which parts of a range are allocated. The caller owns it and keeps it in place until
// `completed` is called, which happens exactly once.
struct ExtentsRequest {
    using Completed = void (*)(ExtentsRequest& request, std::error_code error);

    explicit ExtentsRequest(Completed handler) noexcept : completed(handler) {}

    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::size_t extents_max = 1;
    Completed completed;
    // The answer, if there is no error: at most extents_max extents, in order, which cover at least
    // the first block of the range.
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
    // ASSUMES: offset + bytes <= size_bytes, block aligned, and the request is not in flight (the
    // caller has checked what the peer sent).
    virtual void submit(BlockRequest& request) = 0;
    // Returns a function that flushes what was acknowledged and does not need this storage any
    // more. It is for another thread, where it may take as long as it likes. If that is out of
    // reach, it says so. Empty: there is nothing that such a flush could do.
    virtual std::function<std::error_code()> flush_aside() { return {}; }
    // Completes the request, possibly from inside this call.
    // ASSUMES: geometry().extents; the range is as that of a BlockRequest, and not empty;
    // extents_max > 0.
    // ERRORS: EIO.
    virtual void extents(ExtentsRequest& request);
    // Whether the medium is still there: ENOENT if the file was deleted or the device is gone. It
    // is cheap and does not wait, so that the result may be from the time of the previous call.
    // Called once a second.
    virtual std::error_code check() noexcept { return {}; }
    // The size of the medium now, in bytes. It differs from geometry() once somebody else has made
    // the medium larger or smaller.
    // ERRORS: those of asking the medium.
    virtual std::expected<std::uint64_t, StorageError> measure() const {
        return geometry().size_bytes;
    }
    // The same without waiting: the size that the last check(), or a read that met the end, has
    // found, if it has found one.
    virtual std::optional<std::uint64_t> last_measured() const noexcept {
        return geometry().size_bytes;
    }
    // Changes the size to `bytes`; geometry() has the new size afterwards. A block device must have
    // that size already.
    // ASSUMES: bytes is a positive multiple of the block size; no request beyond it is in flight.
    // ERRORS: EINVAL (the device has another size), EROFS, ENOMEM, EFBIG, EOPNOTSUPP, ...
    virtual std::expected<void, StorageError> resize(std::uint64_t bytes) {
        return may_resize(bytes);
    }
    // The error with which resize() would refuse this size, as far as it is known without trying.
    virtual std::expected<void, StorageError> may_resize(std::uint64_t bytes) const {
        static_cast<void>(bytes);
        return std::unexpected(StorageError{rtrs::from_errno(EOPNOTSUPP),
                                            description() + ": its size cannot be changed"});
    }
    // `lost` is called when acknowledged writes turn out to be lost, before any request that came
    // to the storage meanwhile is completed. There are two cases. Either all flushes fail from then
    // on, and `lost` is not called again. Or geometry() has another cache_epoch, and flushes do not
    // report the loss: a caller that submitted a flush before `lost` was called must treat its
    // success as a failure. Storages that cannot know of losses never call it.
    virtual void when_writes_are_lost(std::function<void()> lost) { static_cast<void>(lost); }
    // What keeps requests waiting at the moment, in words; empty if nothing does.
    virtual std::string trouble() const { return {}; }
    // For the end of the process or of the export, which does not wait for another process for
    // ever. Requests in flight at that process complete soon, with EIO, and so do later requests.
    // Returns in words what was given up. Empty: nothing is in flight, or only requests in the
    // kernel, which have to be waited for; then nothing has changed.
    virtual std::string give_up() { return {}; }
    // The file was not there and has been created, so it is empty.
    virtual bool was_created() const noexcept { return false; }
    // "file /srv/vol1.img", "memory", "null"; "..., delayed on purpose".
    virtual std::string description() const = 0;
};

}  // namespace rnbd
