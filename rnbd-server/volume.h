// An export: its storage, whether it can be used now, and who has it open.
//
//   State     On                                     Goes to   Does
//   waiting   storage opens (tried with back-off)    ready
//   ready     its file or device is gone             waiting   what was open stays closed to I/O
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

#include "rnbd-server/books/epoch_book.h"
#include "rnbd-server/books/writer_book.h"
#include "rnbd-server/config.h"
#include "rnbd-server/export_counters.h"
#include "rnbd-server/medium_claims.h"
#include "rnbd-server/storage.h"
#include "rnbd-server/storage/open_storage.h"
#include "rnbd/messages.h"
#include "rtrs/base/clock.h"
#include "rtrs/base/detached_call.h"
#include "rtrs/reactor.h"
#include "rtrs/server.h"

namespace rnbd {

class Volume;

// Who wants to know what becomes of a volume. Not called from inside the constructor.
class VolumeEvents {
  public:
    // Its size is another now.
    virtual void on_volume_resized(Volume& volume) = 0;
    // A smaller size, which it had while what was in flight ended, is not: its storage has refused.
    virtual void on_volume_keeps_size(Volume& volume) = 0;
    // Ready, or waiting for its storage.
    virtual void on_volume_state(Volume& volume) = 0;
    // Its cache has another epoch now, and what was acknowledged before may be lost.
    virtual void on_volume_epoch(Volume& volume) = 0;

  protected:
    ~VolumeEvents() = default;
};

class Volume {
  public:
    enum class State : std::uint8_t { waiting, ready };

    // One holder of the volume.
    struct Open {
        std::string session;
        AccessMode access = AccessMode::read_only;
        // 0: not known (rnbd-server/books/writers.h).
        Writers::Id writer = 0;
        // Of the medium that it was opened on; null: it only reads.
        std::shared_ptr<Writers> writers{};
        // Null: it is always there.
        const rtrs::ServerSession* holder = nullptr;
        // It has written since anybody else has left, so that all who were away are out.
        bool wrote = false;
        // Ends when what is in flight has ended; its holder is away already.
        bool ends = false;
        // It was away while another one wrote, with something in flight.
        bool is_out = false;
        // Of the storage it was opened on: another file under the same name is not what this
        // holder has seen.
        std::uint64_t generation = 0;
        std::uint64_t in_flight = 0;
        // Of these: they began before the last resize to less, so they may lie beyond the new end.
        std::uint64_t in_flight_before = 0;
        // Of the volume's losses.
        std::uint64_t losses_told = 0;
    };

    // Of all exports. They outlive it.
    struct Shared {
        DeferredCompletions& deferred;
        MediumClaims& claims;
        EpochBook& epochs;
        WriterBook& writers;
    };
    Volume(rtrs::Reactor& reactor, const Shared& shared, ServerConfig::Export config);
    ~Volume();  // ASSUMES: nobody has it open
    Volume(const Volume&) = delete;
    Volume& operator=(const Volume&) = delete;

    const std::string& name() const noexcept { return config_.name; }
    const ServerConfig::Export& config() const noexcept { return config_; }
    State state() const noexcept { return storage_ && !gone_ ? State::ready : State::waiting; }
    // Why it waits, or while ready what keeps its requests waiting, why its flushes fail, or what
    // was cut off from it; empty if there is nothing to say.
    std::string reason() const;
    // Acknowledged writes were lost for good: each flush of this life of the storage fails.
    bool flushes_fail() const noexcept {
        return state() == State::ready && !why_flushes_fail_.empty();
    }
    rtrs::Instant since() const noexcept { return since_; }
    // When its storage is looked for again; none unless it waits.
    std::optional<rtrs::Instant> next_attempt() const noexcept {
        if (state() != State::waiting || !timer_.armed()) return std::nullopt;
        return timer_.deadline();
    }
    // Meaningful while ready.
    const StorageGeometry& geometry() const noexcept { return geometry_; }
    // Of the storage's cache, as clients are told; meaningful while ready.
    std::uint64_t cache_epoch() const noexcept { return cache_epoch_; }

    // ERRORS: ENOENT (waiting), EACCES (the session or its address is not on the list, or not for
    // this access), EROFS (the storage is read-only), EPERM (another holder's access excludes it,
    // by the kernel's rules: any number of readers, one writer, a second one for migration), ESTALE
    // (the writer was away while another one wrote), EAGAIN (it was not there a moment ago, and
    // those who had it then come first).
    struct Opener {
        const std::string& session;
        const std::string& host;  // where it comes from, numeric
        AccessMode access = AccessMode::read_only;
        Writers::Id writer = 0;  // 0: it is not known, or only reads
        const rtrs::ServerSession* holder = nullptr;
        MediumId expects{};  // what its user knows the content of
    };
    // Than that which is expected: another file or device.
    bool stands_for_another(const MediumId& expected) const noexcept {
        return state() == State::ready && expected.rules_out(geometry_.medium);
    }
    std::expected<Open*, std::error_code> open(const Opener& opener);
    bool is_out(Writers::Id writer) const noexcept {
        return writers_ != nullptr && writers_->is_out(writer);
    }
    // Of a holder whose session goes on: it is another writer now.
    void is_writer(Open& open, Writers::Id writer);
    // It is closed when what it has in flight has ended, and may be opened anew after that.
    void ends(Open& open) noexcept;
    // Its holder says that it closes: it holds nothing any more that it would come back with.
    void says_goodbye(Open& open);
    // ASSUMES: open->in_flight == 0. Who said no goodbye may come back.
    void close(Open* open);
    // Before each of its writes: whether it may go on now, or is to ask again when the book has
    // written something, or a request of a holder that is_out has ended.
    bool may_write(Open& open) {
        return (open.wrote && writers_open_ == 1) || may_write_first(open);
    }
    const std::vector<std::unique_ptr<Open>>& opens() const noexcept { return opens_; }
    // What the book has to have written before an open for writing is answered.
    WriterBook::Ticket in_book() const noexcept { return let_in_; }
    // Writers that do not have it open now and may come back with what they hold.
    std::vector<Writers::One> away() const;

    // The storage for this holder's I/O; null if it is gone (ENODEV).
    Storage* storage(const Open& open) noexcept {
        return open.generation == generation_ && !gone_ ? storage_.get() : nullptr;
    }
    // A request of this holder, checked against geometry(), begins; what is to be said at its end.
    std::uint64_t begin(Open& open) const noexcept {
        ++open.in_flight;
        return cuts_;
    }
    void end(Open& open, std::uint64_t begun) const noexcept {
        --open.in_flight;
        if (begun != cuts_) --open.in_flight_before;
    }
    // How often acknowledged writes were lost while it stayed open.
    std::uint64_t losses() const noexcept { return losses_; }
    // Whether a flush that succeeded is to fail all the same: it began when there were so many
    // losses, or its holder was not told of one yet. Counts as told. Who only reads lost nothing.
    bool flush_covers_loss(Open& open, std::uint64_t losses_then) const noexcept {
        if (open.access == AccessMode::read_only) return false;
        return std::exchange(open.losses_told, losses_) != losses_ || losses_then != losses_;
    }
    // Its holder knows the epoch.
    void is_told(Open& open) const noexcept { open.losses_told = losses_; }
    // A flush, or a write with FUA, has failed, and its storage does not say that this was all
    // (BlockRequest::failed_alone). What it has lost of what others wrote is not known, nor whether
    // anybody hears of it: this life of the storage does not end as flushed.
    void sync_has_failed() noexcept { sync_failed_ = true; }
    // Flushes what was acknowledged, then calls done, once: a server ends, or an export goes. An
    // error: what was not flushed before may be lost.
    void flush(std::function<void(std::error_code error)> done);
    // The end was waited for long enough: what another process does not answer fails, and the log
    // says what may be lost by it, or what is waited for all the same.
    void give_up();

    void report_to(VolumeEvents& events) noexcept { events_ = &events; }
    ExportCounters& counters() noexcept { return counters_; }
    const ExportCounters& counters() const noexcept { return counters_; }
    // Requests of all holders.
    std::uint64_t in_flight() const noexcept;
    // Who may open it from now on; who has it open keeps it.
    void set_allow(std::vector<ServerConfig::Allow> allow) { config_.allow = std::move(allow); }
    // Ready, and not as large as the configuration says: a file that is there keeps its size.
    bool has_another_size() const noexcept {
        const auto& configured = config_.storage.size_bytes;
        return state() == State::ready && configured && *configured != geometry_.size_bytes;
    }
    // The size that the configuration gives; what is open stays as large as it is.
    void set_configured_size(std::optional<std::uint64_t> bytes) noexcept {
        config_.storage.size_bytes = bytes;
    }
    // As resize() without a cut, as soon as its storage is there; the log has what goes wrong then.
    // The newest call counts; none: it stays as large as it is. ASSUMES: it waits.
    void grow_when_ready(std::optional<std::uint64_t> bytes);
    // Whether there may be an export of that storage beside it, as far as its uuid says: that which
    // is configured, and that which was found.
    bool may_share_uuid(const StorageOptions& other) const noexcept;
    // Whether the rules let this session have it so.
    bool allows(const std::string& session, const std::string& host,
                AccessMode access) const noexcept;
    // Refuses the session's opens with EBUSY until then.
    void shut_out(const std::string& session, rtrs::Instant until) { shut_out_[session] = until; }
    bool is_shut_out(const std::string& session) const noexcept;
    // Until when; times that are over may be among them.
    const std::map<std::string, rtrs::Instant>& shut_out() const noexcept { return shut_out_; }

    // bytes: none takes the size that the medium has by now. cut: bytes may be less than the medium
    // has, and what lies beyond is lost. A smaller size is in force at once, and the medium is cut
    // when what was in flight by then has ended. done: once, possibly from inside.
    // ERRORS: ENOENT (waiting), EBUSY (a resize is under way), EINVAL (no multiple of the block,
    // too large, smaller and !cut, or any while what others have cut it to was not taken yet),
    // those of Storage::resize().
    enum class Shrink : std::uint8_t { refused, cut };
    using Resized = std::function<void(std::expected<std::uint64_t, StorageError>)>;
    void resize(std::optional<std::uint64_t> bytes, Shrink shrink, Resized done);

  private:
    struct LastFlush;

    std::error_code may_open(const Opener& opener) const;
    bool may_write_first(Open& open);
    bool others_may_write(const std::string& session) const noexcept;
    bool is_here(const Open& open) const noexcept;
    std::vector<Writers::Id> writers_here(const Open* and_this) const;
    bool has_left_former();
    void try_open();
    bool find_storage();
    void drop_found();
    bool is_noted();
    bool may_be_made() const noexcept;
    void is_not_there(const StorageError& error);
    void begin_life();
    void check();
    void wait(std::string reason);
    void wait_untold(std::string reason, rtrs::Duration delay);  // which is no news for the log
    rtrs::Duration grown_delay() noexcept;
    void log_trouble();
    void look_at_size();
    void note_shortage(std::uint64_t medium_bytes);
    void warn_of_size() const;
    void writes_are_lost();
    void cache_is_another();
    bool is_awaited_by_another(const Opener& opener) const;
    void part();
    bool has_parted();
    void parted(std::error_code flush_error);
    bool claim_medium();
    void look_up_medium();
    void grow_as_told();
    StorageError no_longer_there() const;
    std::expected<std::uint64_t, StorageError> may_resize(std::optional<std::uint64_t> bytes,
                                                          Shrink shrink);
    void finish_resize();
    void end_resize(std::expected<std::uint64_t, StorageError> result);
    void tell_state();

    bool only_reads() const noexcept { return config_.storage.only_reads(); }

    rtrs::Reactor& reactor_;
    ServerConfig::Export config_;
    DeferredCompletions& deferred_;
    MediumClaims& claims_;
    EpochBook& epochs_;
    WriterBook& book_;
    MediumClaims::Claim uuid_claim_;    // of the configured one
    MediumClaims::Claim medium_claim_;  // of what is open
    // Of the newest medium, in the books; null: it was never there, or is only read.
    std::string medium_name_;
    std::shared_ptr<const void> in_epochs_;
    EpochBook::Ticket in_use_ = 0;  // of the newest opening
    rtrs::Instant in_use_until_{};  // so long its writing is waited for
    std::shared_ptr<Writers> writers_;
    WriterBook::Ticket put_out_ = 0;  // of those who are out
    WriterBook::Ticket let_in_ = 0;   // of those who are known, where others may write
    std::uint32_t writers_open_ = 0;  // of opens_, those that may write
    rtrs::Timer timer_;
    rtrs::Duration delay_;
    StorageOpening opening_;
    std::unique_ptr<Storage> found_;  // until the books know of it
    std::unique_ptr<Storage> storage_;
    StorageGeometry geometry_;  // as clients see it: may be smaller than the storage for a moment
    bool gone_ = false;         // storage_ is kept for what is in flight on it
    std::uint64_t generation_ = 0;
    std::uint64_t cache_epoch_ = 0;
    bool sync_failed_ = false;  // in this life of the cache
    std::uint64_t losses_ = 0;
    static constexpr std::string_view not_opened_yet = "not opened yet";
    std::string reason_{not_opened_yet};
    bool in_trouble_ = false;  // as the log was told
    // In words, with what is to be done; empty if they do not.
    std::string why_flushes_fail_;
    // Its medium was made smaller by others, in words. It stays so when the medium has its length
    // again, which a write at the end is enough for: what lay there is lost all the same.
    std::string shortage_;
    rtrs::Instant since_;
    std::vector<std::unique_ptr<Open>> opens_;
    rtrs::Instant return_until_{};
    std::unique_ptr<LastFlush> last_flush_;
    // Of a storage that is gone.
    std::optional<rtrs::DetachedCall<std::error_code>> parting_;
    std::string parting_from_;
    rtrs::Instant parting_until_{};
    std::error_code parting_error_;
    std::function<void(std::error_code)> flushed_;
    VolumeEvents* events_ = nullptr;
    ExportCounters counters_;
    std::map<std::string, rtrs::Instant> shut_out_;
    rtrs::Timer resize_timer_;
    std::optional<std::uint64_t> grows_to_;  // when its storage is there
    Resized resized_;                        // a resize is under way
    std::uint64_t resize_generation_ = 0;
    std::uint64_t cuts_ = 0;  // resizes to less
};

const char* to_string(Volume::State state) noexcept;
// "host-a (rw), host-b (ro)": who has it open.
std::string holders_of(const Volume& volume);

}  // namespace rnbd
