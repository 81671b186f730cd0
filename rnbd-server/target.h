// The RNBD protocol at the server: sessions open volumes, and their requests become storage
// requests. Exports can be added, removed and changed while it runs (target_exports.cpp).
//
// OWNER: main. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/control/protocol.h"
#include "rnbd-server/catalog.h"
#include "rnbd-server/config.h"
#include "rnbd-server/read_pacer.h"
#include "rnbd-server/statistics.h"
#include "rnbd-server/storage/deferred_completions.h"
#include "rnbd-server/turned_away.h"
#include "rnbd-server/volume.h"
#include "rnbd/messages.h"
#include "rtrs/base/latency_histogram.h"
#include "rtrs/base/member_call.h"
#include "rtrs/reactor.h"
#include "rtrs/server.h"

namespace rnbd {

// What one session has done, for the status document.
struct SessionStatistics {
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    std::uint64_t other = 0;  // flush, discard, write zeroes
    std::uint64_t read_bytes = 0;
    std::uint64_t write_bytes = 0;
    std::uint64_t errors = 0;
    std::uint64_t refused = 0;       // those of the errors that were never tried, as not in order
    rtrs::LatencyHistogram latency;  // time in the storage
};

class Target final : public rtrs::ServerHandler, private VolumeEvents {
  public:
    enum class Reads : std::uint8_t { in_portions, at_once };  // see ReadPacer
    // epochs, writers: outlive it.
    Target(rtrs::Reactor& reactor, EpochFile& epochs, WriterFile& writers, Reads reads);
    // Opens the configured exports, which may create their files. Called once, before the reactor
    // runs.
    void open_exports(const std::vector<ServerConfig::Export>& exports);
    // portals: the server's portals for kernel clients, by id. Called before the server listens.
    // in_use: portals that sessions came in by. Those of them that have gone keep their rules: a
    // kernel's client stays one, and its device paths stand for what they stood for.
    void use_kernel_portals(std::map<std::uint32_t, KernelListener> portals,
                            const std::set<std::uint32_t>& in_use = {});
    ~Target();

    std::error_code on_path(const rtrs::Arrival& arrival) override;
    std::error_code on_session_up(rtrs::ServerSession& session) override;
    void on_request(rtrs::ServerOp& op) override;
    void on_chunk_gone(void* chunk_context) override;
    void on_session_down(rtrs::ServerSession& session) override;
    void on_closed() override { closed_(); }

    // --- Exports, while sessions run. An operation waits only for requests that were in flight.

    // ERRORS: exists (the name, the uuid, or the path or URI unless both exports only read), also
    // while the export that has it is being removed.
    std::expected<void, ControlFailure> add_export(ServerConfig::Export config);
    // As add_export(), but waits for exports that are being removed, however long that takes. Until
    // then the new export is "coming", unless remove_export() ends that. added: called once,
    // possibly from inside this call; never if the server ends before.
    using Added = std::function<void(const std::expected<void, ControlFailure>&)>;
    void add_export_when_free(ServerConfig::Export config, Added added);
    std::vector<ServerConfig::Export> coming() const;
    bool is_coming(const std::string& name) const noexcept;
    // Replaces the configuration with which a coming export will be added.
    // ASSUMES: an export of this name is coming.
    void change_coming(ServerConfig::Export config);
    // Takes the export from all sessions that have it open, flushes it and forgets it, then calls
    // done with the error of the last flush. From now on nobody can open it. Requests that another
    // process does not answer are given up after 20 s, and again after 20 s of the last flush
    // (Volume::give_up()). If the export is being removed already, done is called when that is
    // over.
    // ERRORS: not_found, busy (it is open, and how is not by_force), stopping (the last flushes are
    // under way).
    enum class Removal : std::uint8_t { if_unused, by_force };
    using Removed = std::function<void(std::error_code last_flush)>;
    std::expected<void, ControlFailure> remove_export(const std::string& name, Removal how,
                                                      Removed done);
    // Says what an error of the last flush means, as the end of a sentence.
    static std::string loss_of(std::error_code last_flush);
    // Takes the export from a session as soon as the session's requests in flight have ended, and
    // lets the session open it again only after `out`. If the export was taken from the session
    // before, and the session may not open it yet, only that time changes.
    // ERRORS: not_found, busy (the export is being removed).
    std::expected<void, ControlFailure> evict(const std::string& name, const std::string& session,
                                              rtrs::Duration out);
    // Sets who may open the volume from now on, and takes it from sessions that may not.
    void set_allow(Volume& volume, std::vector<ServerConfig::Allow> allow);
    // Null if there is no such export, or it is being removed.
    Volume* find(const std::string& name) noexcept;
    // The failure to report if find() returns null: not_found, or busy while it is being removed.
    ControlFailure why_none(const std::string& name) const;
    bool is_leaving(const Volume& volume) const noexcept { return leaving_.contains(&volume); }
    static constexpr const char* why_leaving =
        "it is removed: what is in flight ends, then its last flush";

    // While the server is draining, it accepts no session and opens nothing. Sessions that follow
    // the catalog are told.
    enum class Draining : std::uint8_t { off, on };
    void set_draining(Draining draining);
    Draining draining() const noexcept { return draining_; }
    // When draining was last switched on or off; the start, if it never was.
    rtrs::Instant draining_since() const noexcept { return draining_since_; }
    // Takes every export from every session.
    void evict_all();

    // For the end: opens are answered now that wait for the storage of an export.
    void end_opens();
    // closed: called when the server has closed.
    void when_closed(std::function<void()> closed) { closed_ = std::move(closed); }
    // For the end: flushes every volume that was writable. No export can be removed any more.
    void flush_all(std::function<void()> done);
    // Stops waiting for requests that other processes do not answer (Volume::give_up()).
    void give_up();

    const std::vector<std::unique_ptr<Volume>>& volumes() const noexcept { return volumes_; }
    Catalog& catalog() noexcept { return catalog_; }
    static const SessionStatistics& statistics(const rtrs::ServerSession& session);
    // What the session's client and this server agreed on.
    static Feature features(const rtrs::ServerSession& session);

  private:
    struct Session;
    struct OpenVolume;
    struct InFlight;
    struct Io;
    struct Question;

    void session_info(Session& session, rtrs::ServerOp& op);
    // How long an OPEN may wait for the storage of an export, and whether the log has that.
    struct OpenWait {
        rtrs::Instant until{};
        bool is_told = false;
    };
    void open(Session& session, rtrs::ServerOp& op, OpenWait wait);
    struct Refusal {
        std::error_code code;
        std::string why;
        bool is_waiting = false;  // there is an export, and it waits for its storage
    };
    // The medium whose content the client knows.
    static MediumId expected_by(const Session& session, const OpenMessage& message);
    // Null if this session does not have the volume open in the way that the message asks for.
    const OpenVolume* opened_before(Session& session, const OpenMessage& message,
                                    Writers::Id writer);
    std::expected<const OpenVolume*, Refusal> open_anew(Session& session,
                                                        const OpenMessage& message,
                                                        Writers::Id writer);
    bool may_wait_for_storage(const Session& session, rtrs::Instant until) const noexcept;
    void wait_for_storage(Session& session, rtrs::ServerOp& op, rtrs::Instant until);
    void opens_without_storage_go_on();
    void ask_opens_without_storage_again();
    void opens_go_on();
    void opens_wait_no_longer();
    static bool may_be_answered(const OpenVolume& open);
    void log_overdue(const rtrs::ServerSession& session, const OpenVolume& open);
    static void answer_open(Session& session, rtrs::ServerOp& op, const OpenVolume& open);
    void log_not_open(Session& session, const OpenMessage& message, const std::string& why);
    void close(Session& session, rtrs::ServerOp& op);
    void io(Session& session, rtrs::ServerOp& op);
    void extents(Session& session, rtrs::ServerOp& op);
    static std::expected<OpenVolume*, std::error_code> find_open(Session& session,
                                                                 std::uint32_t device_id);
    std::error_code prepare(Session& session, rtrs::ServerOp& op, Io& io);
    rtrs::Reactor::FixedBuffer pinned(rtrs::ServerOp& op, Io& io);
    void unpin(Io& io) noexcept;
    // For a read that is paced: asks the ReadPacer, and returns whether the read has to wait.
    bool waits(Io& io);
    // Submits the request, or lets it wait for its turn.
    void enter(Io& io, Storage& storage);
    void waited(BlockRequest& request);
    void writes_go_on();
    void writes_wait_no_longer();
    static void start(Io& io, Storage& storage);
    static void completed(BlockRequest& request, std::error_code error);
    static void extents_found(ExtentsRequest& request, std::error_code error);
    // A request is in flight from one of these to the other.
    static void begin(InFlight& accepted);
    static void answer(InFlight& done, std::error_code error, std::uint32_t produced_bytes);
    // Replaces errors of a medium (a FUSE file system that ended, NFS) that would mean something
    // else to a client: that it has to open the device again, or that an attempt came late.
    static std::error_code answered_as(std::error_code error) noexcept;
    void note_failure(OpenVolume& open, const Io& io, std::error_code error);
    static StatisticsResponse statistics_response(const rtrs::ServerSession& session);
    const KernelListener* kernel_portal(std::uint32_t portal) const noexcept;
    std::string export_for(const Session& session, const std::string& asked) const;
    // Why an export cannot be added: ever, or until another one is gone.
    struct Obstacle {
        enum class Lasts : std::uint8_t { on, until_gone };
        Lasts lasts = Lasts::on;
        ControlFailure failure;
    };
    std::optional<Obstacle> obstacle_to(const ServerConfig::Export& config) const;
    void add_coming();
    void remove_coming(const std::string& name, Removed done);
    void note_turned_away(const std::string& session, const std::string& why);
    Volume& own(ServerConfig::Export config);
    void disown(Volume& volume);
    void take_away(Session& session, std::uint32_t device_id);
    void take_away(Volume& volume, const std::string* only_session);
    void closed_one(Volume& volume);
    void leave(Volume& volume);
    void has_left(Volume& volume, std::error_code last_flush);
    void on_volume_resized(Volume& volume) override;
    void on_volume_keeps_size(Volume& volume) override;
    void on_volume_state(Volume& volume) override;
    void on_volume_epoch(Volume& volume) override;

    rtrs::Reactor& reactor_;
    const Reads reads_;
    EpochFile& epochs_;
    WriterFile& writers_;
    // An OPEN that waits for the writers' file.
    struct WaitingOpen {
        Session* session;
        rtrs::ServerOp* op;
        std::uint32_t id;
        WriterFile::Ticket in_file;
        rtrs::Instant until;
    };
    std::vector<WaitingOpen> opens_waiting_;  // oldest first
    rtrs::Timer opens_timer_;
    // An OPEN by a kernel's client that waits for the storage of an export.
    struct OpenWithoutStorage {
        Session* session;
        rtrs::ServerOp* op;
        rtrs::Instant until;
    };
    std::vector<OpenWithoutStorage> opens_without_storage_;  // oldest first
    rtrs::Timer storage_timer_;
    std::vector<Io*> writes_waiting_;
    std::vector<std::unique_ptr<ReadPacer>> pacers_;  // by the reactor's number in its group
    DeferredCompletions deferred_;
    MediumClaims claims_;
    std::vector<std::unique_ptr<Volume>> volumes_;
    // Indexes of volumes_; volumes without a place are under "".
    std::unordered_map<std::string, Volume*> by_name_;
    std::unordered_multimap<std::string, Volume*> by_place_;
    std::map<std::uint32_t, KernelListener> kernel_portals_;
    std::vector<Session*> sessions_;
    Catalog catalog_;
    StatisticsService statistics_{reactor_, statistics_response};
    // Volumes that are being removed: who waits for that, and how long other processes are waited
    // for.
    struct Leaving {
        Leaving(rtrs::Reactor& reactor, Volume& volume)
            : give_up_timer(reactor, &volume, rtrs::member_call<&Volume::give_up>) {}
        std::vector<Removed> waiting;
        rtrs::Timer give_up_timer;
        bool flushing = false;
    };
    std::map<const Volume*, Leaving> leaving_;
    struct Coming {
        ServerConfig::Export config;
        Added added;
        MediumClaims::Claim claim;  // on its configured uuid; null: none, or another has it
    };
    std::vector<Coming> coming_;
    Draining draining_ = Draining::off;
    rtrs::Instant draining_since_;
    TurnedAway turned_away_;
    std::function<void()> closed_;
    std::size_t flushes_ = 0;
    bool opens_end_ = false;
    bool ending_ = false;
};

}  // namespace rnbd
