// The inside of RemoteVolume, shared with RemoteSession. Not for users of the library.
//
//   State      On                              Goes to    Does
//   opening    session ready                   (same)     sends OPEN
//   opening    OPEN answered                   open       sends what was waiting
//   opening    OPEN refused                    (same)     tries again after a delay
//   open       link lost, device unknown       reopening  holds requests
//   reopening  as opening                      open       resumes held, sends waiting requests
//   any        OPEN refused with ESTALE,       superseded fails held, waiting and all that comes
//              and the content is known
//   any        OPEN refused with               (same)     tries again after a delay, until the one
//              EMEDIUMTYPE                                is there whose content is known
//   any        OPEN answered with larger       reopening  gives it back; the same, until blocks fit
//              blocks than users were told
//   any        close                           closing    sends CLOSE when nothing is in flight
//   closing    CLOSE answered, or link lost    closed     leaves an owed CLOSE to the session
#pragma once

#include <list>
#include <optional>
#include <string>

#include "rnbd/remote_volume.h"

namespace rnbd {

struct IoRecord;

struct RemoteVolume::Inside {
    struct Waiting {
        rtrs::Permit permit;
        VolumeIo io;
        std::error_code error;     // what is reported
        std::uint64_t covers = 0;  // as IoRecord
        rtrs::Instant since{};
    };

    Inside(RemoteVolume& its_self, RemoteSession::Inside& its_session,
           RemoteVolumeOptions its_options, RemoteVolumeHandler& its_handler);
    ~Inside();

    // The server says in its catalog that the export has this size now; nonsense is ignored.
    void resized(std::uint64_t size_bytes);
    void report_resize(std::uint64_t bytes_before);
    bool usable_size(std::uint64_t size_bytes) const;
    void link_ready();
    // How long requests wait counts from the moment that it was not open any more.
    void arm_hold();
    void link_lost(std::error_code why);
    void send_open();
    // Something has become of the export: asks at once whether it is open, and what it stands for.
    void look_again();
    // Of one that is open: its requests fail until it is back.
    void storage_is_gone();
    bool storage_is_known_to_be_gone() const;
    void try_again();
    std::string why_refused(std::error_code error) const;
    // bytes: of what came.
    std::string wrong_with(const std::expected<OpenResponse, ParseError>& parsed,
                           std::size_t bytes) const;
    void open_answered(std::error_code error, rtrs::Bytes response);
    bool usable(const OpenResponse& response) const;
    bool is_another(const MediumId& found) const noexcept;
    bool blocks_fit(std::uint32_t bytes) const noexcept;
    void limit_blocks(std::uint32_t bytes);
    void give_back();
    void ask_later();
    void send_close(rtrs::ClientSession::UserResponded responded);
    void opened(const OpenResponse& response);
    void supersede();
    std::error_code open_again();
    std::error_code set_size(std::uint64_t size_bytes);
    void set_state(VolumeState next, std::string why);

    // covers: as IoRecord, kept when a request has to be submitted again.
    void submit(rtrs::Permit permit, const VolumeIo& io, std::uint64_t covers);
    std::error_code check(const VolumeIo& io) const;
    bool is_able_to(const VolumeIo& io) const noexcept;
    void send(rtrs::Permit permit, const VolumeIo& io, std::uint64_t covers);
    void prepare_extents(const rtrs::Permit& permit, const VolumeIo& io,
                         rtrs::ClientRequest& request, rtrs::MutableBytes message) const;
    void answered(rtrs::Permit permit, std::error_code error);
    void submit_again(rtrs::Permit permit, const IoRecord& record);
    // The server does not know the device of that id (any more).
    void device_forgotten(std::uint32_t id);
    bool needs_flush(const VolumeIo& io) const noexcept;
    bool done_by_a_lost_cache(const IoRecord& record) const noexcept;
    void succeeded(const IoRecord& record);
    void resume_held();
    // covers: of a flush that fails for a loss.
    void fail_later(rtrs::Permit permit, const VolumeIo& io, std::error_code error,
                    std::uint64_t covers = 0);
    void report_failures();
    void fail_all_held(std::error_code error);

    void note_epoch(std::uint64_t now);
    void lost_in_part();
    void loss_of_former_life();
    void fail_lost_flushes(std::uint64_t flushed);
    void trace_loss(const std::string& what);

    void close(Close how);
    void close_if_idle();
    void closed();
    std::vector<VolumeRequestStatus> requests() const;

    RemoteVolume& self;
    RemoteSession::Inside& session;
    RemoteVolumeOptions options;
    RemoteVolumeHandler& handler;
    rtrs::Timer retry_timer;
    rtrs::Timer hold_timer;
    rtrs::Timer failure_timer;
    rtrs::Timer closed_timer;

    std::uint64_t writer;  // as OPEN says it; 0: it only reads
    // What it was opened on. OPEN expects it once its user has read or written anything, also
    // beside another writer.
    MediumId medium;
    bool knows_medium;
    // Its user has read, or written: what it believes of the content, or holds, can be old. Beside
    // another writer (migration) only writing counts: what was read before then is not relied on.
    bool knows_content;
    VolumeState state = VolumeState::opening;
    std::string reason = "the session is not connected";
    std::error_code open_error;
    std::string wrong_answer;  // of the newest OPEN that had one
    rtrs::Instant since;
    VolumeGeometry geometry{};
    std::uint32_t blocks_limit = 0;    // 0: none
    std::uint32_t blocks_refused = 0;  // those that it has come back with, if they are too large
    // By the catalog, while an OPEN was on its way. Its answer may be older.
    std::optional<std::uint64_t> size_heard;
    std::uint32_t device_id = 0;
    std::uint32_t refusals = 0;  // in a row
    bool asking = false;         // an OPEN is on its way
    bool asks_again = false;     // and another one after it: there was news meanwhile
    bool hold_time_over = false;
    bool closing = false;
    bool close_sent = false;
    Close how_closed = Close::for_good;
    bool open_at_server = false;  // owes it a CLOSE
    // Whether its session at the server may have it open, should that have outlived the link.
    bool maybe_open_at_server = false;
    std::uint32_t in_flight = 0;  // at the session
    UnflushedWrites unflushed;
    std::list<Waiting> waiting;  // for the volume to be open
    std::list<Waiting> failing;
};

}  // namespace rnbd
