// An export: its storage, whether it can be used now, and who has it open.
//
//   State     On                                     Goes to   Does
//   waiting   storage opens (tried with back-off)    ready
//   ready     its file or device is gone             waiting   I/O of those who have it open fails
//
// OWNER: Target. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "rnbd-server/config.h"
#include "rnbd-server/export_counters.h"
#include "rnbd-server/medium_claims.h"
#include "rnbd-server/parting_flush.h"
#include "rnbd-server/state/cache_life.h"
#include "rnbd-server/state/epoch_file.h"
#include "rnbd-server/state/writer_file.h"
#include "rnbd-server/storage.h"
#include "rnbd-server/storage/storage_opening.h"
#include "rnbd/messages.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/log_rate_limit.h"
#include "rtrs/reactor.h"
#include "rtrs/server.h"

namespace rnbd {

class Volume;

// Is told of changes of a volume. Not called from inside the volume's constructor.
class VolumeEvents {
  public:
    // The size has changed.
    virtual void on_volume_resized(Volume& volume) = 0;
    // A smaller size, which was in force while requests in flight ended, is withdrawn: the storage
    // has refused it.
    virtual void on_volume_keeps_size(Volume& volume) = 0;
    // The volume is ready, or waits for its storage.
    virtual void on_volume_state(Volume& volume) = 0;
    // The cache has another epoch now: writes that were acknowledged before may be lost.
    virtual void on_volume_epoch(Volume& volume) = 0;

  protected:
    ~VolumeEvents() = default;
};

class Volume {
  public:
    enum class State : std::uint8_t { waiting, ready };
    // Whether a holder opens the volume again when its requests fail because the storage was away.
    // A kernel's client does not, as long as its session lives: it goes on with what comes back, if
    // that is the same medium.
    enum class Reopens : std::uint8_t { yes, no };

    // One holder of the volume.
    struct Open {
        std::string session;
        AccessMode access = AccessMode::read_only;
        // 0: not known (rnbd-server/state/writers.h).
        Writers::Id writer = 0;
        // The writers of the medium that it was opened on; null: it only reads.
        std::shared_ptr<Writers> writers{};
        // Null: the holder counts as always connected.
        const rtrs::ServerSession* holder = nullptr;
        // It has written since another holder last left, so that all writers that are away are out
        // already.
        bool wrote = false;
        // It is closed when its requests in flight have ended; its holder counts as away already.
        bool ends = false;
        // Another holder wrote while this one was away with requests in flight.
        bool is_out = false;
        // The generation of the storage that it was opened on, or that it goes on with. A later
        // storage may be another file with the same name, which this holder has not seen.
        std::uint64_t generation = 0;
        std::uint64_t in_flight = 0;
        std::uint64_t ended = 0;  // requests that were in flight
        // How many of the requests in flight began before the last resize to a smaller size, so
        // that they may lie beyond the new end.
        std::uint64_t in_flight_before = 0;
        // How many of the volume's losses this holder was told of.
        std::uint64_t losses_told = 0;
        // See Opener.
        Reopens reopens = Reopens::yes;
        // What it was opened on, for a holder that does not open it again.
        MediumId medium{};
        std::uint32_t logical_block_bytes = 0;
        std::uint64_t cache_epoch = 0;
    };

    // Shared by all exports. The objects outlive the volume.
    struct Shared {
        DeferredCompletions& deferred;
        MediumClaims& claims;
        EpochFile& epochs;
        WriterFile& writers;
    };
    Volume(rtrs::Reactor& reactor, const Shared& shared, ServerConfig::Export config);
    ~Volume();  // ASSUMES: nobody has it open
    Volume(const Volume&) = delete;
    Volume& operator=(const Volume&) = delete;

    const std::string& name() const noexcept { return config_.name; }
    const ServerConfig::Export& config() const noexcept { return config_; }
    State state() const noexcept { return storage_ && !gone_ ? State::ready : State::waiting; }
    // While waiting: why. While ready: what keeps its requests waiting, why its flushes fail, or
    // what was cut off from its medium; empty if there is nothing to say.
    std::string reason() const;
    // Acknowledged writes were lost for good: every flush fails until the storage is opened anew.
    bool flushes_fail() const noexcept {
        return state() == State::ready && !why_flushes_fail_.empty();
    }
    rtrs::Instant since() const noexcept { return since_; }
    // When the storage is looked for again; none unless the volume waits.
    std::optional<rtrs::Instant> next_attempt() const noexcept {
        if (state() != State::waiting || !timer_.armed()) return std::nullopt;
        return timer_.deadline();
    }
    // Meaningful while ready.
    const StorageGeometry& geometry() const noexcept { return geometry_; }
    // While waiting: the size that it had last, or else the configured one; 0: neither is known.
    std::uint64_t size_bytes() const noexcept {
        if (state() == State::ready) return geometry_.size_bytes;
        return size_before_.value_or(config_.storage.size_bytes.value_or(0));
    }
    // The epoch of the storage's cache, as clients are told; meaningful while ready.
    std::uint64_t cache_epoch() const noexcept { return cache_.epoch(); }

    // Who opens the volume.
    struct Opener {
        const std::string& session;
        const std::string& host;  // where it comes from, numeric
        AccessMode access = AccessMode::read_only;
        Writers::Id writer = 0;  // 0: it is not known, or only reads
        const rtrs::ServerSession* holder = nullptr;
        MediumId expects{};  // the medium whose content its user knows
        Reopens reopens = Reopens::yes;
    };
    // True if the volume now stands for another file or device than the expected one.
    bool stands_for_another(const MediumId& expected) const noexcept {
        return state() == State::ready && expected.rules_out(geometry_.medium);
    }
    // ERRORS: ENOENT (waiting), EACCES (the session or its address is not on the list, or not for
    // this access), EBUSY (the session is shut out), EMEDIUMTYPE (the volume stands for another
    // medium than expected), EROFS (the storage is read-only), EPERM (another holder's access
    // excludes it, by the kernel's rules: any number of readers, one writer, a second one for
    // migration), ESTALE (another one wrote while the writer was away), EAGAIN (the volume was not
    // there a moment ago, and those who had it open then come first).
    std::expected<Open*, std::error_code> open(const Opener& opener);
    bool is_out(Writers::Id writer) const noexcept {
        return writers_ != nullptr && writers_->is_out(writer);
    }
    // The holder, whose session goes on, is this writer from now on.
    void is_writer(Open& open, Writers::Id writer);
    // The caller will close it when its requests in flight have ended; it may be opened anew after
    // that.
    void ends(Open& open) noexcept;
    // The holder says that it closes the volume: it holds no writes that it could come back with.
    void says_goodbye(Open& open);
    // A holder that has not said goodbye may come back.
    // ASSUMES: open->in_flight == 0.
    void close(Open* open);
    // Called before each write of the holder. True: the write may be submitted now. False: call it
    // again when the writers' file was written, or when a request of a holder that is_out has
    // ended.
    bool may_write(Open& open) {
        return (open.wrote && writers_open_ == 1) || may_write_first(open);
    }
    const std::vector<std::unique_ptr<Open>>& opens() const noexcept { return opens_; }
    // The ticket that the writers' file has to have written before an open for writing is answered.
    WriterFile::Ticket in_file() const noexcept { return let_in_; }
    // Writers that do not have it open now and may come back with what they hold.
    std::vector<Writers::One> away() const;

    // The storage for this holder's I/O; null if it is gone (answer with ENODEV).
    Storage* storage(const Open& open) noexcept {
        return open.generation == generation_ && !gone_ ? storage_.get() : nullptr;
    }
    // A request of this holder, which was checked against geometry(), begins. The result is to be
    // passed to end().
    std::uint64_t begin(Open& open) const noexcept {
        ++open.in_flight;
        return cuts_;
    }
    void end(Open& open, std::uint64_t begun) const noexcept {
        --open.in_flight;
        ++open.ended;
        if (begun != cuts_) --open.in_flight_before;
    }
    // How often acknowledged writes were lost while the volume stayed open.
    std::uint64_t losses() const noexcept { return losses_; }
    // Whether a flush that succeeded has to fail nevertheless, because there was a loss since it
    // began (when there were losses_then), or its holder was not told of a loss yet. After the call
    // the holder counts as told. A holder that only reads has lost nothing.
    bool flush_covers_loss(Open& open, std::uint64_t losses_then) const noexcept {
        if (open.access == AccessMode::read_only) return false;
        return std::exchange(open.losses_told, losses_) != losses_ || losses_then != losses_;
    }
    // The holder knows the present epoch, and so all losses.
    void is_told(Open& open) const noexcept { open.losses_told = losses_; }
    // A flush, or a write with FUA, has failed, and the storage does not say that only this request
    // is concerned (BlockRequest::failed_alone). It is not known which writes of others are lost,
    // nor whether anybody is told. So this life of the storage does not end as flushed.
    void sync_has_failed() noexcept { cache_.sync_has_failed(); }
    // Called when the server ends or the export is removed. Flushes what was acknowledged, then
    // calls done, once. error: writes that were not flushed before may be lost.
    void flush(std::function<void(std::error_code error)> done);
    // Ends the life of the storage; it is opened no more. ASSUMES: flush() has ended, in an earlier
    // turn, and nobody has the volume open.
    void let_go();
    // The end was waited for long enough. Requests that another process does not answer fail; the
    // log says what may be lost by that, or what is waited for nevertheless.
    void give_up();

    void report_to(VolumeEvents& events) noexcept { events_ = &events; }
    ExportCounters& counters() noexcept { return counters_; }
    const ExportCounters& counters() const noexcept { return counters_; }
    // The requests in flight of all holders.
    std::uint64_t in_flight() const noexcept;
    // Sets who may open it from now on. Sessions that have it open keep it.
    void set_allow(std::vector<ServerConfig::Allow> allow) { config_.allow = std::move(allow); }
    // True if it is ready and its size is not the configured one: an existing file keeps its size.
    bool has_another_size() const noexcept {
        const auto& configured = config_.storage.size_bytes;
        return state() == State::ready && configured && *configured != geometry_.size_bytes;
    }
    // Sets the configured size. The storage that is open keeps its size.
    void set_configured_size(std::optional<std::uint64_t> bytes) noexcept {
        config_.storage.size_bytes = bytes;
    }
    // Does the same as resize() with Shrink::refused, as soon as the storage is there; errors are
    // logged. Only the newest call counts; none: the size does not change.
    // ASSUMES: the volume waits.
    void grow_when_ready(std::optional<std::uint64_t> bytes);
    // Whether the other storage may be exported beside this one, as far as the uuids say: the
    // configured one, and the one that was found.
    bool may_share_uuid(const StorageOptions& other) const noexcept;
    // Whether the rules allow this session this access.
    bool allows(const std::string& session, const std::string& host,
                AccessMode access) const noexcept;
    // Refuses the session's opens with EBUSY until this time.
    void shut_out(const std::string& session, rtrs::Instant until) { shut_out_[session] = until; }
    bool is_shut_out(const std::string& session) const noexcept;
    // By session: until when it is shut out. Some of these times may be over.
    const std::map<std::string, rtrs::Instant>& shut_out() const noexcept { return shut_out_; }

    // bytes: none takes the present size of the medium. Shrink::cut: bytes may be less than the
    // medium has, and the data beyond is lost. A smaller size is in force at once; the medium is
    // cut when the requests that are in flight now have ended. done: called once, possibly from
    // inside this call.
    // ERRORS: ENOENT (waiting), EBUSY (a resize is under way), EINVAL (not a multiple of the block
    // size, too large, smaller without Shrink::cut, or any size while the size to which others have
    // cut the medium was not taken yet), those of Storage::resize().
    enum class Shrink : std::uint8_t { refused, cut };
    using Resized = std::function<void(std::expected<std::uint64_t, StorageError>)>;
    void resize(std::optional<std::uint64_t> bytes, Shrink shrink, Resized done);

  private:
    struct LastFlush;

    // --- volume.cpp: when its storage is there.
    void try_open();
    bool has_left_former();
    void part();
    bool has_parted();
    bool find_storage();
    bool may_be_made() const noexcept;
    bool claim_medium();
    void look_up_medium();
    void is_not_there(const StorageError& error);
    bool is_noted();
    void drop_found();
    void begin_life();
    void check();
    void wait(std::string reason);
    void wait_untold(std::string reason, rtrs::Duration delay);  // without a line in the log
    rtrs::Duration grown_delay() noexcept;
    void writes_are_lost();
    void cache_is_another();
    std::uint64_t ended() const noexcept;
    void look_for_progress();
    std::string trouble() const;
    void log_trouble();
    void tell_state();
    bool only_reads() const noexcept { return config_.storage.only_reads(); }

    // --- volume_opens.cpp: who has it open.
    std::error_code may_open(const Opener& opener) const;
    bool is_awaited_by_another(const Opener& opener) const;
    void go_on_with_those_who_stay();
    bool may_write_first(Open& open);
    bool others_may_write(const std::string& session) const noexcept;
    bool is_here(const Open& open) const noexcept;
    std::vector<Writers::Id> writers_here(const Open* and_this) const;

    // --- volume_resize.cpp: its size.
    void look_at_size();
    void note_shortage(std::uint64_t medium_bytes);
    void warn_of_size() const;
    void grow_as_told();
    StorageError no_longer_there() const;
    std::expected<std::uint64_t, StorageError> may_resize(std::optional<std::uint64_t> bytes,
                                                          Shrink shrink);
    void finish_resize();
    void end_resize(std::expected<std::uint64_t, StorageError> result);

    rtrs::Reactor& reactor_;
    ServerConfig::Export config_;
    DeferredCompletions& deferred_;
    MediumClaims& claims_;
    EpochFile& epochs_;
    WriterFile& writers_file_;
    VolumeEvents* events_ = nullptr;
    ExportCounters counters_;

    // When its storage is there.
    MediumClaims::Claim uuid_claim_;    // on the configured uuid
    MediumClaims::Claim medium_claim_;  // on the uuid of the storage that is open
    CacheLife cache_;
    rtrs::Timer timer_;
    rtrs::Duration delay_;
    StorageOpening opening_;
    std::unique_ptr<Storage> found_;  // an open storage that the state files do not know yet
    std::unique_ptr<Storage> storage_;
    bool gone_ = false;  // storage_ is kept only for its requests in flight
    std::uint64_t generation_ = 0;
    std::uint64_t losses_ = 0;
    rtrs::LogRateLimit logged_losses_{};
    static constexpr std::string_view not_opened_yet = "not opened yet";
    std::string reason_{not_opened_yet};
    rtrs::Instant since_;
    bool in_trouble_ = false;  // what the log said last
    // At the last look: how many requests had ended, of those who have it open; and since when none
    // has, though some are under way.
    std::uint64_t ended_then_ = 0;
    std::optional<rtrs::Instant> stands_since_;
    // In words, with what the user has to do; empty if flushes do not fail.
    std::string why_flushes_fail_;
    PartingFlush parting_;
    std::error_code parting_error_;  // of the last one, until a storage is open again
    std::unique_ptr<LastFlush> last_flush_;
    std::function<void(std::error_code)> flushed_;

    // Who has it open.
    std::vector<std::unique_ptr<Open>> opens_;
    rtrs::Instant return_until_{};      // those who had it open before its storage went come first
    std::shared_ptr<Writers> writers_;  // of the newest medium; null: none yet, or it is only read
    WriterFile::Ticket put_out_ = 0;    // ticket of the newest writers that are out
    WriterFile::Ticket let_in_ = 0;     // ticket of the newest known writer, if others may write
    std::uint32_t writers_open_ = 0;    // how many of opens_ may write
    std::map<std::string, rtrs::Instant> shut_out_;

    // Its size.
    StorageGeometry geometry_;  // as clients see it: may be smaller than the storage for a moment
    std::optional<std::uint64_t> size_before_;  // when the last storage vanished
    // Says in words that others made the medium smaller. It stays even if the medium gets its
    // length again, for which a write at the end is enough: the data that was there is lost.
    std::string shortage_;
    rtrs::Timer resize_timer_;
    std::optional<std::uint64_t> grows_to_;  // see grow_when_ready()
    Resized resized_;                        // not empty while a resize is under way
    std::uint64_t resize_generation_ = 0;
    std::uint64_t cuts_ = 0;  // resizes to less
};

const char* to_string(Volume::State state) noexcept;
// "host-a (rw), host-b (ro)": who has it open.
std::string holders_of(const Volume& volume);

}  // namespace rnbd
