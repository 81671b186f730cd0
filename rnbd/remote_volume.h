// A volume of a remote server. The client daemon, the fio engine and the C library build on it.
//
//   RemoteSession session(environment, options);       // paths, permits, SESS_INFO
//   RemoteVolume volume(session, {"vol1", AccessMode::read_write}, handler);
//   ... handler.on_volume_changed(), and volume.state() is open ...
//   Permit permit = ...; volume.submit(std::move(permit), io);
//
// When a volume has lost its link, it is reopened automatically once the link is back, with the new
// device id. I/O in between is held (rtrs/client.h: hold_time, fail_fast_time); the interruption
// itself never makes it fail. Held I/O fails when the session gives up.
//
// If the server refuses the open (the export waits, or its access is taken), the volume tries again
// with back-off, for ever; state and reason say so. The same happens if the export now stands for
// another file or device than the one whose content the volume's user knows (Feature::medium): held
// I/O waits until the known medium is back. There is one exception: a volume that was open for
// writing, and to which another writer has written meanwhile (Feature::writer), stays superseded.
// What it held is older than what is there now, so all held requests fail with ESTALE, and so does
// every later request.
//
// Writes that were not flushed may be lost with the server's machine. If the server announces an
// epoch (Feature::epoch), the volume notices such a loss. Then every flush that should have covered
// the lost writes fails with EIO; if there is none, the next flush fails, once. Nothing else fails
// because of the loss.
//
// THREAD: the session's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "rnbd/messages.h"
#include "rnbd/remote_session.h"
#include "rnbd/unflushed_writes.h"
#include "rtrs/client.h"

namespace rnbd {

struct VolumeGeometry {
    std::uint64_t size_bytes = 0;
    std::uint32_t logical_block_bytes = 512;
    std::uint32_t physical_block_bytes = 512;
    std::uint64_t discard_bytes_max = 0;  // per request; 0: no discard
    std::uint32_t discard_granularity_bytes = 0;
    std::uint64_t write_zeroes_bytes_max = 0;  // per request; 0: the server has no write_zeroes
    bool fast_zero = false;                    // VolumeIo::fast_only is honoured
    bool extents = false;                      // VolumeOperation::extents is supported
    bool write_cache = false;
    bool force_unit_access = false;  // FUA is supported; if not: write, then flush
};

// extents: asks which parts of the range are allocated; extents_in() returns the answer.
enum class VolumeOperation : std::uint8_t { read, write, flush, discard, write_zeroes, extents };

constexpr bool changes_content(VolumeOperation operation) noexcept {
    return operation == VolumeOperation::write || operation == VolumeOperation::discard ||
           operation == VolumeOperation::write_zeroes;
}

struct VolumeIo {
    VolumeOperation operation = VolumeOperation::read;
    bool force_unit_access = false;  // done only when it is on stable storage; not for reads
    bool no_unmap = false;           // write_zeroes: the space stays allocated
    bool fast_only = false;          // write_zeroes: EOPNOTSUPP if it would be as slow as a write
    // A flush that the volume's user did not ask for: it follows a request with FUA, for that
    // request alone, or comes before the volume is closed. It does not fail for writes that were
    // lost before it, and if it fails, the user does not count as told of a loss.
    bool behind = false;
    std::uint64_t offset = 0;  // bytes, a multiple of the logical block; not used by flush
    // Also a multiple of the logical block, and not used by flush. Read, write: at most the
    // session's max_io_bytes(); the data is at the beginning of the permit's payload(). Other
    // operations: at most what the geometry allows per request.
    std::uint32_t bytes = 0;
    // As rtrs::ClientRequest::responded: called once, never inside submit(); it returns the permit.
    rtrs::ClientRequest::Responded responded = nullptr;
    void* context = nullptr;
};

const char* to_string(VolumeOperation operation) noexcept;

// A request that is not answered yet.
struct VolumeRequestStatus {
    enum class Stage : std::uint8_t {
        session,  // rtrs::ClientSession has it, and knows more about it under the same permit
        waiting,  // it waits until the volume is open
    };
    Stage stage = Stage::session;
    rtrs::PermitId permit{};
    VolumeOperation operation = VolumeOperation::read;
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    rtrs::Instant since{};  // Stage::waiting: since when it waits
};

enum class VolumeState : std::uint8_t {
    opening,  // never open so far: the session is down or the open was refused; reason says which
    open,
    reopening,  // it was open; I/O is held
    // It was open, and another writer has written since. This is final: close the volume and make
    // another one.
    superseded,
    closed,
};
const char* to_string(VolumeState state) noexcept;

class RemoteVolume;

class RemoteVolumeHandler {
  public:
    // The state, its reason, the geometry, the epoch or the medium changed. Not called from inside
    // submit().
    virtual void on_volume_changed(RemoteVolume& volume) = 0;
    // The server has refused an OPEN. Called for every refusal, also if the previous answer was the
    // same; after on_volume_changed(), if something has changed.
    virtual void on_volume_refused(RemoteVolume& /*volume*/) {}
    // After close(): the server has been told (or is gone), and nothing is in flight.
    virtual void on_volume_closed(RemoteVolume& volume) = 0;

  protected:
    ~RemoteVolumeHandler() = default;
};

struct RemoteVolumeOptions {
    std::string name;  // the export's name at the server, 1..254 bytes
    AccessMode access = AccessMode::read_write;
    // The members below come from a former life of the volume whose user may still be there, with
    // the data that it held.
    //
    // The writer() of that life. 0: a new writer.
    std::uint64_t writer = 0;
    // The epoch() of the cache that may hold writes which were acknowledged in that life and which
    // no flush has covered. If the server has another cache by now, a flush fails to report the
    // loss. 0: there are no such writes.
    std::uint64_t epoch = 0;
    // Something was lost already in that life, and its user has not been told. A flush fails to
    // report the loss.
    bool untold_loss = false;
    // The medium() that the user of that life knows. Not known: any medium is accepted.
    MediumId medium{};
};

class RemoteVolume {
  public:
    RemoteVolume(RemoteSession& session, RemoteVolumeOptions options, RemoteVolumeHandler& handler);
    ~RemoteVolume();  // ASSUMES: on_volume_closed was delivered
    RemoteVolume(const RemoteVolume&) = delete;
    RemoteVolume& operator=(const RemoteVolume&) = delete;

    // Lets requests in flight finish, then closes the volume at the server; held requests fail with
    // Error::closed. may_return: the user of the volume goes on, and may come back with the data
    // that it holds (writer()), so the server is not told. Use may_return only if the session is
    // about to be closed, too.
    enum class Close : std::uint8_t { for_good, may_return };
    void close(Close how = Close::for_good);

    VolumeState state() const noexcept;
    // Empty while it is open, unless its storage is known to be gone at the server.
    const std::string& reason() const noexcept;
    // The hold time is over: until the volume is open, requests fail at once instead of waiting.
    bool hold_time_over() const noexcept;
    // The server's answer to the newest OPEN: ENOENT (no such export, or it waits), EACCES (not
    // allowed), EPERM (access taken), EROFS, ... ESTALE while superseded. Empty if the OPEN was
    // accepted or is not answered yet, or if the link was lost since.
    std::error_code open_error() const noexcept;
    // Whether the server may still run requests of this volume that were given up: it is not opened
    // before they have ended.
    bool waits_for_given_up() const noexcept;
    rtrs::Instant since() const noexcept;
    // When the server will be asked again; none: no time is set.
    std::optional<rtrs::Instant> next_attempt() const noexcept;
    // Meaningful once the volume has been open. It may change whenever the volume is opened again.
    // The size may also change while the volume is open, when a server with a catalog says so.
    const VolumeGeometry& geometry() const noexcept;
    const RemoteVolumeOptions& options() const noexcept;
    const VolumeLosses& losses() const noexcept;
    // How many acknowledged writes no flush has covered yet and were not counted as lost.
    std::uint64_t unflushed_writes() const noexcept;
    // Call this for a change in several parts that was acknowledged to the user, if a cache was
    // lost after the first part was acknowledged, and maybe that part with it. A flush that is
    // submitted from now on fails.
    void lost_in_part();
    RemoteSession& session() noexcept;
    // The number by which the server knows the one who may hold writes (Feature::writer); 0: the
    // volume is only read.
    std::uint64_t writer() const noexcept;
    // The medium that the volume stands for at the server, as far as the server says it.
    const MediumId& medium() const noexcept;
    // The epoch of the server's cache that has the acknowledged writes; 0: not known.
    std::uint64_t epoch() const noexcept;
    // Asks the server now instead of at the end of the back-off. open_error() is empty until the
    // server has answered.
    // ERRORS: EALREADY (open), ENODEV (closing or closed), ESTALE (superseded), ECONNABORTED (no
    // path is up).
    std::error_code open_again();
    // Assumes from now on that the volume has this size at the server; for a server without a
    // catalog, which cannot report it. The next size that the server reports replaces it.
    // ERRORS: ENOENT (it is not open), EINVAL (not a whole number of logical blocks, or more than
    // 63 bits).
    std::error_code set_size(std::uint64_t size_bytes);
    // Sets the largest logical block that the users of the volume can handle, because they were
    // told of this size; 0 (initially): any. If the volume comes back with larger blocks, it is not
    // accepted (open_error() is EMEDIUMTYPE) and requests are held as while the server is away,
    // until the volume has such blocks again or this function is called again.
    void limit_blocks(std::uint32_t bytes);
    // Every unanswered request. For people: it is too slow for programs that are in a hurry.
    std::vector<VolumeRequestStatus> requests() const;

    // The request is held while the volume is not open. The server checks range and rights. A
    // request outside of the current geometry is refused here with EINVAL (ENOSPC for writes), and
    // a write to a read-only volume with EROFS.
    void submit(rtrs::Permit permit, const VolumeIo& io);

    // The answer to an extents request that succeeded: one extent or more, in whole blocks, from
    // the offset of the request on without a gap. They may end before the end of its range or after
    // it.
    // ERRORS: Error::protocol.
    std::expected<std::vector<ExtentDescriptor>, std::error_code> extents_in(
        const rtrs::Permit& permit) const;

    struct Inside;

  private:
    std::unique_ptr<Inside> inside_;
    RemoteSession& session_;
};

}  // namespace rnbd
