// A volume of a remote server: what the client daemon, the fio engine and the C library build on.
//
//   RemoteSession session(environment, options);       // paths, permits, SESS_INFO
//   RemoteVolume volume(session, {"vol1", AccessMode::read_write}, handler);
//   ... handler.on_volume_changed(), and volume.state() is open ...
//   Permit permit = ...; volume.submit(std::move(permit), io);
//
// A volume that loses its session is opened again by itself when the link is back, with the new
// device id; I/O in between is held (rtrs/client.h: hold_time, fail_fast_time), never failed by the
// interruption. It fails when the session gives up.
// If the server then refuses the open (export waiting, access taken), it is tried again with
// back-off, for ever; state and reason say so. So it is where the export stands for another file or
// device than the one whose content the volume's user knows (Feature::medium): what is held waits
// for that one. With one exception: a volume that was open for
// writing, and that another writer has written to meanwhile (Feature::writer), stays superseded.
// What it held is older than what is there, so that fails, and everything after it, with ESTALE.
//
// What was written and not flushed may be lost with the server's machine. A server that announces
// an epoch (Feature::epoch) lets the volume notice. Then every flush that was to cover it fails
// with EIO, and if there is none, the next one: once. Nothing else fails for it.
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
    std::uint64_t write_zeroes_bytes_max = 0;  // per request; 0: the server has none
    bool fast_zero = false;                    // VolumeIo::fast_only is honoured
    bool extents = false;                      // what is allocated can be asked for
    bool write_cache = false;
    bool force_unit_access = false;  // else: write, then flush
};

// extents: what of the range is allocated; extents_in() has the answer.
enum class VolumeOperation : std::uint8_t { read, write, flush, discard, write_zeroes, extents };

struct VolumeIo {
    VolumeOperation operation = VolumeOperation::read;
    bool force_unit_access = false;  // done when it is on stable storage; not for reads
    bool no_unmap = false;           // write_zeroes: the space stays allocated
    bool fast_only = false;          // write_zeroes: EOPNOTSUPP rather than as slow as a write
    // A flush that is not for the volume's user to hear of: behind something with FUA, for that
    // alone, or before the volume is closed. It does not fail for what was lost before it, and its
    // failure does not count as told.
    bool behind = false;
    std::uint64_t offset = 0;  // bytes, a multiple of the logical block; not for flush
    // Likewise. Read, write: at most the session's max_io_bytes(), and the permit's payload() from
    // its beginning. Others: as the geometry allows per request.
    std::uint32_t bytes = 0;
    // As rtrs::ClientRequest::responded: once, never inside submit(), the permit comes back.
    rtrs::ClientRequest::Responded responded = nullptr;
    void* context = nullptr;
};

const char* to_string(VolumeOperation operation) noexcept;

// A request that is not answered yet.
struct VolumeRequestStatus {
    enum class Stage : std::uint8_t {
        session,  // rtrs::ClientSession has it, and knows more under the same permit
        waiting,  // until the volume is open
    };
    Stage stage = Stage::session;
    rtrs::PermitId permit{};
    VolumeOperation operation = VolumeOperation::read;
    std::uint64_t offset = 0;
    std::uint32_t bytes = 0;
    rtrs::Instant since{};  // waiting: since when
};

enum class VolumeState : std::uint8_t {
    opening,  // never open so far: session down or open refused; reason says which
    open,
    reopening,  // was open; I/O is held
    // Was open, and another writer has written since. For ever: close it, and make another one.
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
    // The server has refused an OPEN, also if that was the answer to the one before: after
    // on_volume_changed(), if something has.
    virtual void on_volume_refused(RemoteVolume& /*volume*/) {}
    // After close(): the server has been told (or is gone), nothing is in flight.
    virtual void on_volume_closed(RemoteVolume& volume) = 0;

  protected:
    ~RemoteVolumeHandler() = default;
};

struct RemoteVolumeOptions {
    std::string name;  // the export's name at the server, 1..254 bytes
    AccessMode access = AccessMode::read_write;
    // Of a former life whose user may still be there, with what it held: the writer() of that. 0:
    // a new one.
    std::uint64_t writer = 0;
    // Of that life too: the epoch() of the cache that may have writes which it acknowledged, and no
    // flush has covered. If the server has another cache by now, a flush fails to say so. 0: there
    // are none.
    std::uint64_t epoch = 0;
    // Of that life too: something was lost already, and its user has not heard of it. A flush fails
    // to say so.
    bool untold_loss = false;
    // Of that life too: the medium() that its user knows. Not known: any is taken.
    MediumId medium{};
};

class RemoteVolume {
  public:
    RemoteVolume(RemoteSession& session, RemoteVolumeOptions options, RemoteVolumeHandler& handler);
    ~RemoteVolume();  // ASSUMES: on_volume_closed was delivered
    RemoteVolume(const RemoteVolume&) = delete;
    RemoteVolume& operator=(const RemoteVolume&) = delete;

    // Lets requests in flight finish, closes at the server; held requests fail with Error::closed.
    // may_return: its user goes on, and may come back with what it holds (writer()): the server is
    // not told. Only before the session is closed, too.
    enum class Close : std::uint8_t { for_good, may_return };
    void close(Close how = Close::for_good);

    VolumeState state() const noexcept;
    const std::string& reason() const noexcept;  // empty while open
    // Nothing waits any longer: until it is open, requests fail at once.
    bool hold_time_over() const noexcept;
    // What the server said to the newest OPEN, empty if it was accepted, not answered yet, or the
    // link was lost since: ENOENT (no such export, or it waits), EACCES (not allowed), EPERM
    // (access taken), EROFS, ... ESTALE while superseded.
    std::error_code open_error() const noexcept;
    rtrs::Instant since() const noexcept;
    // When the server is asked again; none: no time is set.
    std::optional<rtrs::Instant> next_attempt() const noexcept;
    // Meaningful once it has been open; may change when it is opened again, and its size also while
    // it is open, when a server with a catalog says so.
    const VolumeGeometry& geometry() const noexcept;
    const RemoteVolumeOptions& options() const noexcept;
    const VolumeLosses& losses() const noexcept;
    // Acknowledged writes that no flush has covered yet, and that were not counted as lost.
    std::uint64_t unflushed_writes() const noexcept;
    // Of a change in several parts that is acknowledged to its user: a cache was lost after the
    // first part was acknowledged, and maybe with it. A flush that is submitted from now on fails.
    void lost_in_part();
    RemoteSession& session() noexcept;
    // Under which number the server knows who may hold writes (Feature::writer); 0: it only reads.
    std::uint64_t writer() const noexcept;
    // What the volume stands for at the server, as far as that says it.
    const MediumId& medium() const noexcept;
    // Of the cache at the server that has what was acknowledged; 0: not known.
    std::uint64_t epoch() const noexcept;
    // Asks the server now instead of at the end of the back-off. open_error() is empty until it has
    // answered. ERRORS: EALREADY (open), ENODEV (closing or closed), ESTALE (superseded),
    // ECONNABORTED (no path is up).
    std::error_code open_again();
    // Takes it from now on that the server has this size, as one without a catalog cannot say.
    // What the server says next counts again. ERRORS: ENOENT (it is not open), EINVAL (no whole
    // number of logical blocks, or more than 63 bits).
    std::error_code set_size(std::uint64_t size_bytes);
    // The largest logical block that its users can keep to, since they were told of such; 0: any,
    // as at first. If it comes back with larger ones it is not taken (open_error() EMEDIUMTYPE),
    // but held as while the server is away, until it has such blocks again or this is called anew.
    void limit_blocks(std::uint32_t bytes);
    // Every unanswered request; for people, not for programs that are in a hurry.
    std::vector<VolumeRequestStatus> requests() const;

    // Held while the volume is not open. Range and rights are checked by the server; what lies
    // outside of the current geometry is refused here with EINVAL (ENOSPC for writes), a write to
    // a read-only volume with EROFS.
    void submit(rtrs::Permit permit, const VolumeIo& io);

    // The answer of an extents request that succeeded: from its offset on without a gap, at least
    // one; they may end before its range or after it. ERRORS: Error::protocol.
    static std::expected<std::vector<ExtentDescriptor>, std::error_code> extents_in(
        const rtrs::Permit& permit);

    struct Inside;

  private:
    std::unique_ptr<Inside> inside_;
    RemoteSession& session_;
};

}  // namespace rnbd
