#include "rnbd-server/volume.h"

#include <algorithm>
#include <utility>

#include "daemon/config_common.h"
#include "daemon/log.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {

struct Volume::LastFlush final : BlockRequest {
    LastFlush(Volume& its_volume, Completed handler) : BlockRequest(handler), volume(its_volume) {}
    Volume& volume;
    bool over = false;
};

namespace {

using namespace std::chrono_literals;

// A server that was killed may leave its lock for as long as its last I/O takes: look again soon.
constexpr rtrs::Duration retry_delay_min = 20ms;
constexpr rtrs::Duration retry_delay_max = 1s;
constexpr rtrs::Duration check_interval = 1s;
// Clients ask again at least every two seconds.
constexpr rtrs::Duration return_time = 3s;
constexpr rtrs::Duration claim_retry_delay = 5s;
// As long as at the server's end: more than a busy disk takes for a flush.
constexpr rtrs::Duration parting_time = 20s;
// How often a resize looks whether what was in flight has ended.
constexpr rtrs::Duration resize_interval = 2ms;

StorageError no_longer_there(const std::string& name) {
    return {rtrs::from_errno(ENODEV), name + ": its storage is gone"};
}

}  // namespace

const char* to_string(Volume::State state) noexcept {
    return state == Volume::State::ready ? "ready" : "waiting";
}

std::string holders_of(const Volume& volume) {
    std::string text;
    for (const auto& open : volume.opens()) {
        text += (text.empty() ? "" : ", ") + open->session + " (" + to_word(open->access) + ")";
    }
    return text;
}

Volume::Volume(rtrs::Reactor& reactor, const Shared& shared, ServerConfig::Export config)
    : reactor_(reactor),
      config_(std::move(config)),
      deferred_(shared.deferred),
      claims_(shared.claims),
      epochs_(shared.epochs),
      book_(shared.writers),
      timer_(reactor, this,
             [](void* self) {
                 auto& volume = *static_cast<Volume*>(self);
                 if (volume.state() == State::ready) {
                     volume.check();
                 } else {
                     volume.try_open();
                 }
             }),
      delay_(retry_delay_min),
      since_(reactor.now()),
      resize_timer_(reactor, this,
                    [](void* self) { static_cast<Volume*>(self)->finish_resize(); }) {
    if (config_.storage.uuid && !only_reads()) {
        // If another one has it: claim_medium() says so.
        uuid_claim_ = claims_.claim(*config_.storage.uuid, config_.name).value_or(nullptr);
    }
    try_open();
}

Volume::~Volume() {
    RTRS_ASSERT(opens_.empty());
    if (resized_) end_resize(std::unexpected(no_longer_there(config_.name)));
}

void Volume::tell_state() {
    if (events_ != nullptr) events_->on_volume_state(*this);
}

std::uint64_t Volume::in_flight() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& open : opens_) sum += open->in_flight;
    return sum;
}

void Volume::try_open() {
    if (storage_) {
        // The old file's last requests are still under way.
        const bool busy =
            std::ranges::any_of(opens_, [](const auto& open) { return open->in_flight > 0; });
        if (busy) {
            timer_.arm(reactor_.now() + delay_);
            return;
        }
        part();
    }
    if (!has_parted()) {
        // Most are quick, and their reason is that of before.
        if (reactor_.now() < parting_until_ - parting_time + check_interval)
            return timer_.arm(reactor_.now() + retry_delay_min);
        return wait("what was acknowledged is being flushed to the former " + parting_from_);
    }
    if (flushed_) return std::exchange(flushed_, nullptr)(parting_error_);
    if (config_.storage.uuid && !only_reads() && !uuid_claim_) {
        uuid_claim_ = claims_.claim(*config_.storage.uuid, config_.name).value_or(nullptr);
    }
    StorageOptions options = config_.storage;
    // A file that was there once is not made anew: an empty one in its place would pass for it. So
    // would one whose name for its content is given.
    const bool may_be_made = generation_ == 0 && !options.uuid;
    if (!may_be_made && options.kind == StorageOptions::Kind::path) options.size_bytes.reset();
    auto storage = open_storage(reactor_, deferred_, options, opening_);
    if (!storage) {
        // Each call goes on with what the one before has begun.
        if (storage.error().code == std::errc::operation_in_progress) delay_ = retry_delay_min;
        const bool absent = storage.error().code == std::errc::no_such_file_or_directory;
        if (absent && !may_be_made && (generation_ > 0 || config_.storage.size_bytes)) {
            return wait(config_.storage.path +
                        (generation_ > 0 ? ": not there; it is not created again, since an empty "
                                           "file would pass for what was there"
                                         : ": not there; it is not created, since its uuid says "
                                           "that it has content"));
        }
        wait(storage.error().text);
        return;
    }
    storage_ = std::move(*storage);
    geometry_ = storage_->geometry();
    if (options.uuid) geometry_.medium.uuid = *options.uuid;
    if (!claim_medium()) return;
    storage_->when_writes_are_lost([this] { writes_are_lost(); });
    gone_ = false;
    in_trouble_ = false;
    shortage_.clear();
    sync_failed_ = false;
    ++generation_;
    look_up_medium();
    reason_.clear();
    since_ = reactor_.now();
    return_until_ = since_ + return_time;
    delay_ = retry_delay_min;
    logger("rnbd.volume")
        .info("{}: ready: {}, {} bytes", config_.name, storage_->description(),
              geometry_.size_bytes);
    if (options.delay) {
        logger("rnbd.volume")
            .warn(
                "{}: this export delays I/O on purpose (storage: kind: delay); not for data that "
                "somebody waits for",
                config_.name);
    }
    timer_.arm(reactor_.now() + check_interval);
    tell_state();
    grow_as_told();
}

// What was found is another export's: it is let go of, and waited for.
bool Volume::claim_medium() {
    if (only_reads() || geometry_.medium.uuid == Uuid{}) return true;
    auto claim = claims_.claim(geometry_.medium.uuid, config_.name);
    if (claim) {
        medium_claim_ = std::move(*claim);
        return true;
    }
    const std::string what = storage_->description();
    storage_.reset();
    delay_ = claim_retry_delay;
    wait(what + " has the uuid " + to_text(geometry_.medium.uuid) + ", as export " + claim.error() +
         " has, and would pass for that; expected a uuid of its own in the configuration, or "
         "read_only");
    return false;
}

// What the books know of the medium that was found. Who only reads writes nothing there.
void Volume::look_up_medium() {
    cache_epoch_ = geometry_.cache_epoch;
    if (only_reads()) return;
    medium_name_ = medium_name(geometry_.medium, config_.name);
    // It was called so before its uuid was given.
    const bool by_name = storage_->geometry().medium.uuid == Uuid{};
    if (by_name) book_.take_over(medium_name_, config_.name);
    writers_ = book_.of(medium_name_);
    // Memory is gone with any end of the process.
    const auto kind = config_.storage.kind;
    if (kind != StorageOptions::Kind::path && kind != StorageOptions::Kind::nbd) return;
    if (by_name) epochs_.take_over(medium_name_, config_.name);
    in_epochs_ = epochs_.hold(medium_name_);
    cache_epoch_ = epochs_.opened(medium_name_, cache_epoch_);
}

// The storage goes on, without what was not flushed. Its holders hear of it as after a crash.
void Volume::cache_is_another() {
    logger("rnbd.volume")
        .error("{}: acknowledged writes that were not flushed may be lost; flushes fail to say so",
               config_.name);
    geometry_.cache_epoch = storage_->geometry().cache_epoch;
    cache_epoch_ = geometry_.cache_epoch;
    if (in_epochs_) cache_epoch_ = epochs_.opened(medium_name_, cache_epoch_);
    sync_failed_ = false;
    ++losses_;
    if (events_ != nullptr) events_->on_volume_epoch(*this);
}

// Flushes fail from now on; who opens it after this server's end is to know, too.
void Volume::writes_are_lost() {
    if (storage_->geometry().cache_epoch != geometry_.cache_epoch) return cache_is_another();
    logger("rnbd.volume")
        .error(
            "{}: acknowledged writes cannot be written back and are lost; flushes fail until it "
            "is opened anew",
            config_.name);
    note_loss();
}

// Who opens it from now on sees another epoch.
void Volume::note_loss() {
    if (const auto error = epochs_.lost(medium_name_)) {
        logger("rnbd.volume")
            .error("{}: {}; clients will not be told of the loss after a restart of the server",
                   epochs_.path(), error.message());
    }
}

void Volume::wait(std::string reason) {
    const bool changed = reason != reason_;
    if (changed) {
        logger("rnbd.volume").warn("{}: waiting: {}", config_.name, reason);
        since_ = reactor_.now();
    }
    reason_ = std::move(reason);
    timer_.arm(reactor_.now() + delay_);
    delay_ = std::min(2 * delay_, retry_delay_max);
    if (changed) tell_state();
}

void Volume::check() {
    if (const auto error = storage_->check()) {
        gone_ = true;
        delay_ = retry_delay_min;
        const std::string trouble = storage_->trouble();
        wait(storage_->description() +
             " has vanished: " + (trouble.empty() ? error.message() : trouble) +
             "; requests of those who have it open fail");
        return;
    }
    log_trouble();
    look_at_size();
    timer_.arm(reactor_.now() + check_interval);
}

std::string Volume::reason() const {
    if (state() == State::waiting) return reason_;
    const std::string trouble = storage_->trouble();
    return trouble.empty() ? shortage_ : trouble;
}

void Volume::look_at_size() {
    const auto medium = storage_->last_measured();
    if (resized_ || !shortage_.empty() || !medium || *medium >= geometry_.size_bytes) return;
    shortage_ =
        storage_->description() + " was made smaller by others: " + std::to_string(*medium) +
        " of the " + std::to_string(geometry_.size_bytes) +
        " bytes that are exported; what lay beyond is lost, and requests there fail until it "
        "is resized or opened anew";
    logger("rnbd.volume").error("{}: {}", config_.name, shortage_);
}

void Volume::log_trouble() {
    const std::string trouble = storage_->trouble();
    if (trouble.empty() != in_trouble_) return;
    in_trouble_ = !trouble.empty();
    if (in_trouble_) {
        logger("rnbd.volume").warn("{}: requests wait: {}", config_.name, trouble);
    } else {
        logger("rnbd.volume").info("{}: requests go on", config_.name);
    }
}

bool Volume::allows(const std::string& session, const std::string& host,
                    AccessMode access) const noexcept {
    return std::ranges::any_of(config_.allow, [&](const ServerConfig::Allow& allow) {
        return allow.session == session && (!allow.address || allow.address->contains(host)) &&
               access <= allow.access;
    });
}

bool Volume::is_shut_out(const std::string& session) const noexcept {
    const auto found = shut_out_.find(session);
    return found != shut_out_.end() && reactor_.now() < found->second;
}

std::error_code Volume::may_open(const Opener& opener) const {
    if (!allows(opener.session, opener.host, opener.access)) return rtrs::from_errno(EACCES);
    if (is_shut_out(opener.session)) return rtrs::from_errno(EBUSY);
    if (stands_for_another(opener.expects)) return rtrs::from_errno(EMEDIUMTYPE);
    if (opener.access == AccessMode::read_only) return {};
    if (only_reads()) return rtrs::from_errno(EROFS);
    if (opener.writer != 0 && is_out(opener.writer)) return rtrs::from_errno(ESTALE);
    if (is_awaited_by_another(opener)) return rtrs::from_errno(EAGAIN);
    // Who opened it on a storage that is gone writes no more.
    const auto writers = std::ranges::count_if(opens_, [this](const auto& open) {
        return open->access != AccessMode::read_only && open->generation == generation_;
    });
    if (writers == 0) return {};
    // The two of a migration come back in any order, also the one that was the only one at first.
    const bool second =
        opener.access == AccessMode::migration ||
        (writers_->knows(opener.writer) && std::ranges::all_of(opens_, [](const auto& open) {
             return open->access != AccessMode::read_write;
         }));
    if (writers > 1 || !second) return rtrs::from_errno(EPERM);
    return {};
}

// Who had it when its storage, or the server, went is not overtaken by one who has waited for it,
// and would be put out by that one's first write.
bool Volume::is_awaited_by_another(const Opener& opener) const {
    if (writers_ == nullptr || reactor_.now() >= return_until_) return false;
    // A kernel's client says no number, and does not ask again.
    if (opener.writer == 0 || writers_->knows(opener.writer)) return false;
    const std::vector<Writers::One> others = away();
    return std::ranges::any_of(others, [&](const auto& one) {
        return one.session != opener.session && one.export_name == config_.name;
    });
}

std::expected<Volume::Open*, std::error_code> Volume::open(const Opener& opener) {
    if (const auto error = may_open(opener)) return std::unexpected(error);
    if (state() == State::waiting) return std::unexpected(rtrs::from_errno(ENOENT));
    auto open = std::make_unique<Open>(Open{.session = opener.session,
                                            .access = opener.access,
                                            .writers = writers_,
                                            .holder = opener.holder,
                                            .generation = generation_,
                                            .losses_told = losses_});
    if (opener.access != AccessMode::read_only) {
        ++writers_open_;
        is_writer(*open, opener.writer);
    }
    return opens_.emplace_back(std::move(open)).get();
}

void Volume::close(Open* open) {
    RTRS_ASSERT(open->in_flight == 0);
    if (open->access != AccessMode::read_only) --writers_open_;
    std::erase_if(opens_, [&](const auto& one) { return one.get() == open; });
    // Another writer that has it open (migration) puts out the one that is away now.
    for (const auto& one : opens_) one->wrote = false;
}

// --- Writers.

void Volume::is_writer(Open& open, Writers::Id writer) {
    if (writer == 0 || writer == open.writer) return;
    const bool changed = open.writer != 0 && open.writers->closes(open.writer);
    open.writer = writer;
    const Writers::News news =
        open.writers->opens({writer, open.session, config_.name}, writers_here(nullptr));
    if (news != Writers::News::out) {
        if (changed || news == Writers::News::known) book_.changed();
        return;
    }
    // As of who is put out by a write: the next write waits until that is in the file.
    put_out_ = book_.write_now();
    for (const auto& one : opens_) one->wrote = false;
    open.wrote = false;
}

void Volume::says_goodbye(Open& open) {
    if (open.writer != 0 && open.writers->closes(open.writer)) book_.changed();
    open.writer = 0;
}

void Volume::ends(Open& open) noexcept {
    open.ends = true;
    for (const auto& one : opens_) one->wrote = false;
}

bool Volume::is_here(const Open& open) const noexcept {
    return !open.ends && open.generation == generation_ &&
           (open.holder == nullptr || open.holder->connected());
}

std::vector<Writers::Id> Volume::writers_here(const Open* and_this) const {
    std::vector<Writers::Id> here;
    for (const auto& one : opens_) {
        if (one->writer != 0 && (one.get() == and_this || is_here(*one)))
            here.push_back(one->writer);
    }
    return here;
}

std::vector<Writers::One> Volume::away() const {
    if (writers_ == nullptr) return {};
    const std::vector<Writers::Id> here = writers_here(nullptr);
    std::vector<Writers::One> away = writers_->known();
    std::erase_if(away,
                  [&](const auto& one) { return std::ranges::find(here, one.id) != here.end(); });
    return away;
}

// From now on what those hold for it who are away is old.
bool Volume::may_write_first(Open& open) {
    const std::vector<Writers::One> away = open.writers->writes(writers_here(&open));
    for (const Writers::One& one : away) {
        for (const auto& other : opens_) other->is_out |= other->writer == one.id;
        logger("rnbd.volume")
            .warn(
                "{}: {} writes, while {} is away and may still hold writes: that one is not let "
                "in again before it has mapped the volume anew",
                config_.name, printable(open.session), printable(one.session));
    }
    if (!away.empty()) put_out_ = book_.write_now();
    // What they have at the storage would else end after this one.
    const bool others_end = std::ranges::any_of(
        opens_, [](const auto& other) { return other->is_out && other->in_flight > 0; });
    open.wrote = book_.is_written(put_out_) && !others_end;
    return open.wrote;
}

// --- Size.

void Volume::resize(std::optional<std::uint64_t> bytes, Shrink shrink, Resized done) {
    const auto refuse = [&](int error, const std::string& why) {
        done(std::unexpected(StorageError{rtrs::from_errno(error), config_.name + ": " + why}));
    };
    if (state() == State::waiting) return refuse(ENOENT, "it waits: " + reason_);
    if (resized_) return refuse(EBUSY, "another resize is under way");
    // All exports would wait with it.
    if (const std::string trouble = storage_->trouble(); !trouble.empty()) {
        return refuse(EBUSY, trouble);
    }
    const auto medium = storage_->measure();
    if (!medium) return done(std::unexpected(medium.error()));
    const std::uint64_t wanted = bytes.value_or(*medium);
    const std::uint64_t block = geometry_.logical_block_bytes;
    if (wanted == 0 || wanted % block != 0) {
        return refuse(EINVAL, "its size would be " + std::to_string(wanted) +
                                  " bytes; expected a positive multiple of the block size " +
                                  std::to_string(block));
    }
    if (wanted > export_bytes_max) {
        return refuse(EINVAL, "its size would be " + std::to_string(wanted) +
                                  " bytes; expected at most " + std::to_string(export_bytes_max));
    }
    if (wanted < *medium && shrink == Shrink::refused) {
        return refuse(EINVAL, "it has " + std::to_string(*medium) +
                                  " bytes, and what lies beyond " + std::to_string(wanted) +
                                  " would be lost");
    }
    // Before anything is refused beyond an end that is not to come.
    if (const auto may = storage_->may_resize(wanted); !may) {
        return done(std::unexpected(may.error()));
    }
    resized_ = std::move(done);
    resize_generation_ = generation_;
    if (wanted >= geometry_.size_bytes) {
        if (const auto grown = storage_->resize(wanted); !grown) {
            return end_resize(std::unexpected(grown.error()));
        }
        geometry_.size_bytes = wanted;
        return end_resize(wanted);
    }
    // From now on nothing starts beyond the new end.
    geometry_.size_bytes = wanted;
    ++cuts_;
    for (const auto& open : opens_) open->in_flight_before = open->in_flight;
    finish_resize();
}

void Volume::grow_when_ready(std::optional<std::uint64_t> bytes) {
    RTRS_ASSERT(state() == State::waiting);
    grows_to_ = bytes;
}

void Volume::grow_as_told() {
    const auto bytes = std::exchange(grows_to_, std::nullopt);
    if (!bytes || *bytes == geometry_.size_bytes) return;
    resize(bytes, Shrink::refused, [this](const std::expected<std::uint64_t, StorageError>& size) {
        if (size) return;
        logger("rnbd.volume")
            .error("{}: it does not have the size that was configured while it waited: {}",
                   config_.name, size.error().text);
    });
}

// Cuts the medium, when nothing can write beyond the new end any more.
void Volume::finish_resize() {
    if (gone_ || resize_generation_ != generation_) {
        return end_resize(std::unexpected(no_longer_there(config_.name)));
    }
    const bool waits =
        std::ranges::any_of(opens_, [](const auto& open) { return open->in_flight_before > 0; });
    if (waits) return resize_timer_.arm(reactor_.now() + resize_interval);
    if (const auto cut = storage_->resize(geometry_.size_bytes); !cut) {
        geometry_.size_bytes = storage_->geometry().size_bytes;
        return end_resize(std::unexpected(cut.error()));
    }
    end_resize(geometry_.size_bytes);
}

void Volume::end_resize(std::expected<std::uint64_t, StorageError> result) {
    const Resized done = std::exchange(resized_, nullptr);
    if (result) {
        shortage_.clear();
        if (config_.storage.size_bytes) config_.storage.size_bytes = *result;
        logger("rnbd.volume").info("{}: has {} bytes now", config_.name, *result);
        if (events_ != nullptr) events_->on_volume_resized(*this);
    }
    done(std::move(result));
}

void Volume::flush(std::function<void(std::error_code error)> done) {
    timer_.disarm();
    if (only_reads() || (!storage_ && !parting_)) {
        reactor_.post([done = std::move(done)] { done({}); });
        return;
    }
    flushed_ = std::move(done);
    // One that is gone is let go of first.
    if (state() == State::waiting) return timer_.arm(reactor_.now());
    last_flush_ =
        std::make_unique<LastFlush>(*this, [](BlockRequest& request, std::error_code error) {
            auto& flush = static_cast<LastFlush&>(request);
            Volume& volume = flush.volume;
            flush.over = true;
            if (error) {
                logger("rnbd.volume").error("{}: last flush: {}", volume.name(), error.message());
            } else if (!volume.sync_failed_) {
                volume.epochs_.flushed(volume.medium_name_);
            }
            std::exchange(volume.flushed_, nullptr)(error);
        });
    last_flush_->operation = BlockOperation::flush;
    storage_->submit(*last_flush_);
}

// What was acknowledged may never get to a medium that is gone, and nobody else would be told.
void Volume::part() {
    auto flush = only_reads() ? nullptr : storage_->flush_aside();
    parting_from_ = storage_->description();
    parting_until_ = reactor_.now() + parting_time;
    storage_.reset();
    medium_claim_.reset();
    if (flush) parting_.emplace(std::move(flush));
}

// A flush that succeeds is none of an end in order: what is found next may be another file, under
// the same uuid.
bool Volume::has_parted() {
    if (!parting_) return true;
    const bool over = parting_->is_over();
    if (!over && reactor_.now() < parting_until_) return false;
    parting_error_ = over ? parting_->error() : rtrs::from_errno(ETIMEDOUT);
    parting_.reset();
    if (parting_error_) {
        logger("rnbd.volume")
            .error(
                "{}: {}: last flush: {}; acknowledged writes may be lost, and the next flush "
                "says so",
                config_.name, parting_from_, parting_error_.message());
    }
    if (parting_error_ || sync_failed_) note_loss();
    return true;
}

void Volume::give_up() {
    if (parting_) {
        parting_until_ = reactor_.now();
        return timer_.arm(reactor_.now());
    }
    if (!storage_) return;
    auto& log = logger("rnbd.volume");
    if (const std::string what = storage_->give_up(); !what.empty()) {
        return log.error("{}: {} is not waited for any longer: {}", config_.name,
                         storage_->description(), what);
    }
    const std::uint64_t under_way = in_flight() + (last_flush_ && !last_flush_->over ? 1 : 0);
    if (under_way == 0) return;
    log.warn("{}: the end waits for {}: {} requests are under way", config_.name,
             storage_->description(), under_way);
}

}  // namespace rnbd
