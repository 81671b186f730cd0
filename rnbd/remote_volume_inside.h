// The inside of RemoteVolume, shared with RemoteSession. Not for users of the library.
//
//   State      On                              Goes to    Does
//   opening    session ready                   (same)     sends OPEN
//   opening    OPEN answered                   open       sends the requests that were waiting
//   opening    OPEN refused                    (same)     tries again after a delay
//   open       link lost, device unknown       reopening  holds requests
//   reopening  as opening                      open       resumes held, sends waiting requests
//   any        OPEN refused with ESTALE,       superseded fails held, waiting and later requests
//              and the content is known
//   any        OPEN refused with               (same)     tries again after a delay, until the
//              EMEDIUMTYPE                                medium is there whose content is known
//   any        OPEN answered with larger       reopening  closes it at the server and tries again
//              blocks than users were told                after a delay, until the blocks fit;
//                                                         seldom while the catalog has them, too
//   any        close                           closing    sends CLOSE when nothing is in flight
//   closing    CLOSE answered, or link lost    closed     leaves an owed CLOSE to the session
#pragma once

#include <list>
#include <optional>
#include <string>

#include "rnbd/remote_volume.h"
#include "rtrs/base/log_rate_limit.h"

namespace rnbd {

struct IoRecord;

struct RemoteVolume::Inside {
    struct Waiting {
        rtrs::Permit permit;
        VolumeIo io;
        std::error_code error;     // the error to be reported
        std::uint64_t covers = 0;  // as IoRecord::covers
        rtrs::Instant since{};
    };

    Inside(RemoteVolume& its_self, RemoteSession::Inside& its_session,
           RemoteVolumeOptions its_options, RemoteVolumeHandler& its_handler);
    ~Inside();

    // The server says in its catalog that the export has this size now. An impossible size is
    // ignored, and so is a part of a block at the end.
    void resized(std::uint64_t size_bytes);
    void report_resize(std::uint64_t bytes_before);
    std::optional<std::uint64_t> usable_part(std::uint64_t size_bytes) const;
    void link_ready();
    // The hold time is counted from the moment when the volume stopped being open.
    void arm_hold();
    void link_lost(std::error_code why);
    void send_open();
    // Something happened to the export: asks the server at once whether the volume is open, and
    // which medium it stands for.
    void look_again();
    // The volume is open and its storage is gone: its requests fail until the storage is back.
    void storage_is_gone();
    bool storage_is_known_to_be_gone() const;
    bool blocks_are_known_to_be_refused() const;
    void try_again();
    std::string why_refused(std::error_code error) const;
    // bytes: the length of the answer that arrived.
    std::string wrong_with(const std::expected<OpenResponse, ParseError>& parsed,
                           std::size_t bytes) const;
    void open_answered(std::error_code error, rtrs::Bytes response);
    void answered_while_closing(std::error_code error, rtrs::Bytes response);
    std::error_code accept(rtrs::Bytes response);
    bool become_another_writer();
    void open_refused(std::error_code error);
    rtrs::Duration retry_delay(std::error_code error) const;
    bool usable(const OpenResponse& response) const;
    bool is_another(const MediumId& found) const noexcept;
    bool blocks_fit(std::uint32_t bytes) const noexcept;
    void limit_blocks(std::uint32_t bytes);
    void give_back();
    void ask_later();
    // In a coming turn, if it is not open and not being opened.
    void open_soon();
    void send_close(rtrs::ClientSession::UserResponded responded);
    void opened(const OpenResponse& response);
    void supersede();
    std::error_code open_again();
    std::error_code set_size(std::uint64_t size_bytes);
    // An interruption that is not traced is over without a trace, too.
    enum class Traced : std::uint8_t { yes, no };
    void set_state(VolumeState next, std::string why, Traced traced = Traced::yes);
    void trace_state();
    std::uint64_t draw_writer() const;

    // covers: as IoRecord::covers; it is kept when a request has to be submitted again.
    void submit(rtrs::Permit permit, const VolumeIo& io, std::uint64_t covers);
    std::error_code check(const VolumeIo& io) const;
    bool is_able_to(const VolumeIo& io) const noexcept;
    void send(rtrs::Permit permit, const VolumeIo& io, std::uint64_t covers);
    void prepare_extents(const rtrs::Permit& permit, const VolumeIo& io,
                         rtrs::ClientRequest& request, rtrs::MutableBytes message) const;
    void answered(rtrs::Permit permit, std::error_code error);
    void submit_again(rtrs::Permit permit, const IoRecord& record);
    // The server does not know the device with this id (any more).
    void device_forgotten(std::uint32_t id);
    // The server has another volume under this id.
    void id_is_of_another(std::uint32_t id);
    bool needs_flush(const VolumeIo& io) const noexcept;
    bool done_by_a_lost_cache(const IoRecord& record) const noexcept;
    void succeeded(const IoRecord& record);
    void resume_held();
    // covers: for a flush that fails because of a loss, what it covers.
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

    std::uint64_t writer;  // as in OPEN; 0: the volume is only read
    // The medium that the volume was opened on. OPEN expects it once the user has read or written
    // anything (knows_medium), also beside another writer.
    MediumId medium;
    bool knows_medium;
    // The user has read or written, so that what it holds, or believes of the content, can be out
    // of date. Beside another writer (migration) only writes count: what was read before the
    // hand-over is not relied on.
    bool knows_content;
    VolumeState state = VolumeState::opening;
    std::string reason = "the session is not connected";
    std::error_code open_error;
    std::string wrong_answer;  // what was wrong with the newest answer to OPEN that was unusable
    rtrs::Instant since;
    VolumeGeometry geometry{};
    std::uint32_t blocks_limit = 0;    // bytes, see limit_blocks(); 0: none
    std::uint32_t blocks_refused = 0;  // the server's block size, if it is too large; else 0
    // The size that the catalog reported while an OPEN was on its way. The answer to OPEN may be
    // older.
    std::optional<std::uint64_t> size_heard;
    std::uint32_t device_id = 0;
    std::uint32_t refusals = 0;      // in a row
    bool writer_drawn_anew = false;  // since it was open
    bool asking = false;             // an OPEN is on its way, or the CLOSE of give_back()
    bool asks_again = false;         // another OPEN has to follow: there was news meanwhile
    bool hold_time_over = false;
    bool closing = false;
    bool close_sent = false;
    Close how_closed = Close::for_good;
    bool open_at_server = false;  // the server is owed a CLOSE
    // Whether the server's session, if it has outlived the link, may have the volume open.
    bool maybe_open_at_server = false;
    std::uint32_t in_flight = 0;  // requests that the RTRS session has
    UnflushedWrites unflushed;
    rtrs::LogRateLimit traced_losses{};
    rtrs::LogRateLimit traced_closes{};  // by the server
    bool interruption_untraced = false;
    std::list<Waiting> waiting;  // until the volume is open
    std::list<Waiting> failing;
};

}  // namespace rnbd
