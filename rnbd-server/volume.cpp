#include "rnbd-server/volume.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/config/common.h"
#include "daemon/log/log.h"
#include "rnbd-server/storage/open_storage.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/member_call.h"

namespace rnbd {

struct Volume::LastFlush final : BlockRequest {
    LastFlush(Volume& its_volume, Completed handler) : BlockRequest(handler), volume(its_volume) {}
    Volume& volume;
    bool over = false;
};

namespace {

using namespace std::chrono_literals;

// The lock of a server that was killed may last as long as its last I/O: look again soon.
constexpr rtrs::Duration retry_delay_min = 20ms;
constexpr rtrs::Duration retry_delay_max = 1s;
constexpr rtrs::Duration check_interval = 1s;
// A flush of a slow disk, or the emptying of a large range, may take seconds by itself.
constexpr rtrs::Duration stands_still_after = 10s;
// Clients ask again at least every two seconds.
constexpr rtrs::Duration return_time = 3s;
constexpr rtrs::Duration claim_retry_delay = 5s;

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
      writers_file_(shared.writers),
      cache_(shared.epochs),
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
      resize_timer_(reactor, this, rtrs::member_call<&Volume::finish_resize>) {
    try_open();
}

Volume::~Volume() {
    RTRS_ASSERT(opens_.empty());
    let_go();
}

void Volume::let_go() {
    drop_found();
    if (resized_) {
        resize_timer_.disarm();
        end_resize(std::unexpected(no_longer_there()));
    }
    if (!storage_) return;
    size_before_ = geometry_.size_bytes;
    reason_ = "it is being removed";
    storage_.reset();
}

void Volume::tell_state() {
    if (events_ != nullptr) events_->on_volume_state(*this);
}

std::uint64_t Volume::in_flight() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& open : opens_) sum += open->in_flight;
    return sum;
}

// True if nothing is left of the former storage; else it looks again later.
bool Volume::has_left_former() {
    if (storage_) {
        // The last requests to the old file are still under way.
        const bool busy =
            std::ranges::any_of(opens_, [](const auto& open) { return open->in_flight > 0; });
        if (busy) {
            timer_.arm(reactor_.now() + delay_);
            return false;
        }
        part();
    }
    if (has_parted()) return true;
    if (parting_.takes_long(reactor_.now())) {
        wait("what was acknowledged is being flushed to the former " + parting_.from());
    } else {
        timer_.arm(reactor_.now() + retry_delay_min);  // the reason stays as it was
    }
    return false;
}

void Volume::try_open() {
    if (!has_left_former()) return;
    if (flushed_) return std::exchange(flushed_, nullptr)(parting_error_);
    if (!found_ && !find_storage()) return;
    if (!is_noted()) return wait_untold(epochs_.path() + " is being written", retry_delay_min);
    storage_ = std::move(found_);
    begin_life();
}

// True if the storage was found. Otherwise the reason is noted, and it is looked for again later.
bool Volume::find_storage() {
    if (config_.storage.uuid && !only_reads() && !uuid_claim_) {
        // If another export has the uuid, claim_medium() says so.
        uuid_claim_ = claims_.claim(*config_.storage.uuid, config_.name).value_or(nullptr);
    }
    StorageOptions options = config_.storage;
    if (!may_be_made() && options.kind == StorageOptions::Kind::path) options.size_bytes.reset();
    if (generation_ > 0) opening_.whom = DescriptorRoom::For::returning;
    auto storage = open_storage(reactor_, deferred_, options, opening_);
    if (!storage) {
        is_not_there(storage.error());
        return false;
    }
    found_ = std::move(*storage);
    geometry_ = found_->geometry();
    if (options.uuid) geometry_.medium.uuid = *options.uuid;
    if (!claim_medium()) return false;
    look_up_medium();
    return true;
}

// Drops a storage that was found and not used: nobody could write to it.
void Volume::drop_found() {
    if (found_) cache_.was_not_opened();
    found_.reset();
}

// True if the epochs' file says that the medium is in use, or if that was waited for long enough.
bool Volume::is_noted() {
    if (cache_.is_noted()) return true;
    if (reactor_.now() < cache_.noted_by()) return false;
    logger("rnbd.volume")
        .error(
            "{}: {}: not written for {} s; {} is exported all the same, and after a restart its "
            "clients may be told of a loss that was none, or not of one that was",
            config_.name, epochs_.path(), CacheLife::file_wait_max / 1s, found_->description());
    return true;
}

// A file that was there once is not made anew, because an empty file would be mistaken for it. The
// same holds for a file whose uuid is configured, as that says that it has content.
bool Volume::may_be_made() const noexcept { return generation_ == 0 && !config_.storage.uuid; }

void Volume::is_not_there(const StorageError& error) {
    const bool absent = error.code == std::errc::no_such_file_or_directory;
    if (absent && !may_be_made() && (generation_ > 0 || config_.storage.size_bytes)) {
        return wait(config_.storage.path +
                    (generation_ > 0 ? ": not there; it is not created again, since an empty "
                                       "file would pass for what was there"
                                     : ": not there; it is not created, since its uuid says "
                                       "that it has content"));
    }
    // Each call continues what the one before has begun. So the next call comes soon, and the delay
    // between attempts does not grow.
    const bool begun = error.code == std::errc::operation_in_progress;
    if (!begun && error.code != std::errc::connection_already_in_progress) return wait(error.text);
    // The reason of the last attempt stands until this attempt has ended.
    const bool first = reason_.empty() || reason_ == not_opened_yet;
    wait_untold(first ? error.text : reason_, begun ? retry_delay_min : grown_delay());
}

// Begins the life of the storage that was opened.
void Volume::begin_life() {
    storage_->when_writes_are_lost([this] { writes_are_lost(); });
    gone_ = false;
    in_trouble_ = false;
    stands_since_.reset();
    parting_error_.clear();
    why_flushes_fail_.clear();
    shortage_.clear();
    ++generation_;
    cache_.opened();
    go_on_with_those_who_stay();
    reason_.clear();
    since_ = reactor_.now();
    return_until_ = since_ + return_time;
    delay_ = retry_delay_min;
    // The log says if a file was created: an empty one may be in a place where a disk should have
    // been mounted.
    logger("rnbd.volume")
        .info("{}: ready: {}, {}{} bytes", config_.name, storage_->description(),
              storage_->was_created() ? "created, " : "", geometry_.size_bytes);
    if (config_.storage.delay) {
        logger("rnbd.volume")
            .warn(
                "{}: this export delays I/O on purpose (storage: kind: delay); not for data that "
                "somebody waits for",
                config_.name);
    }
    timer_.arm(reactor_.now() + check_interval);
    tell_state();
    grow_as_told();
    warn_of_size();
}

bool Volume::may_share_uuid(const StorageOptions& other) const noexcept {
    if (!other.uuid) return true;
    const StorageOptions& own = config_.storage;
    const bool same_place = !own.place().empty() && own.place() == other.place();
    if (own.uuid == other.uuid && !same_place) return false;
    // Only if the medium was found; otherwise the claims decide when it is found.
    const bool found = state() == State::ready && geometry_.medium.uuid == other.uuid;
    return !found || own.only_reads() || other.only_reads();
}

// Claims the medium that was found. If another export has it, the medium is released, and the
// volume waits.
bool Volume::claim_medium() {
    if (only_reads() || geometry_.medium.uuid == Uuid{}) return true;
    auto claim = claims_.claim(geometry_.medium.uuid, config_.name);
    if (claim) {
        medium_claim_ = std::move(*claim);
        return true;
    }
    const std::string what = found_->description();
    found_.reset();
    delay_ = claim_retry_delay;
    wait(what + " has the uuid " + to_text(geometry_.medium.uuid) + ", as export " + claim.error() +
         " has, and would pass for that; expected a uuid of its own in the configuration, or "
         "read_only");
    return false;
}

// Looks up what the state files know of the medium that was found. A read-only export does not use
// them.
void Volume::look_up_medium() {
    const std::uint64_t epoch = geometry_.cache_epoch;
    if (only_reads()) return cache_.begins(epoch);
    const std::string medium = medium_name(geometry_.medium, config_.name);
    // The medium had the export's name in the state files before its uuid was configured.
    const bool by_name = found_->geometry().medium.uuid == Uuid{};
    if (by_name) writers_file_.take_over(medium, config_.name);
    writers_ = writers_file_.of(medium);
    // Memory is lost with any end of the process, so it is not in the epochs' file.
    const auto kind = config_.storage.kind;
    if (kind != StorageOptions::Kind::path && kind != StorageOptions::Kind::nbd) {
        return cache_.begins(epoch);
    }
    if (by_name) epochs_.take_over(medium, config_.name);
    cache_.begins(medium, epoch, reactor_.now());
}

// The storage goes on, without the unflushed writes. Its holders are told as after a crash.
void Volume::cache_is_another() {
    // A storage may fail each flush, and its users may go on all the same.
    if (const auto times = logged_losses_.happened(reactor_.now())) {
        logger("rnbd.volume")
            .error(
                "{}: acknowledged writes that were not flushed may be lost; flushes fail to say "
                "so{}",
                config_.name, rtrs::how_often(*times));
    }
    geometry_.cache_epoch = storage_->geometry().cache_epoch;
    cache_.is_another(geometry_.cache_epoch);
    for (const auto& open : opens_) open->cache_epoch = cache_.epoch();
    ++losses_;
    if (events_ != nullptr) events_->on_volume_epoch(*this);
}

// Flushes fail from now on. Whoever opens the medium after this server's end has to know, too.
void Volume::writes_are_lost() {
    if (storage_->geometry().cache_epoch != geometry_.cache_epoch) return cache_is_another();
    why_flushes_fail_ =
        "acknowledged writes cannot be written back and are lost; flushes fail until it is opened "
        "again: see to " +
        storage_->description() +
        ", then restart rnbd-server, or remove the export and add it again";
    logger("rnbd.volume").error("{}: {}", config_.name, why_flushes_fail_);
    cache_.lost();
}

void Volume::wait(std::string reason) {
    if (reason != reason_) logger("rnbd.volume").warn("{}: waiting: {}", config_.name, reason);
    wait_untold(std::move(reason), grown_delay());
}

// The delay before the next attempt; the one after it is twice as long.
rtrs::Duration Volume::grown_delay() noexcept {
    return std::exchange(delay_, std::min(2 * delay_, retry_delay_max));
}

void Volume::wait_untold(std::string reason, rtrs::Duration delay) {
    const bool changed = reason != reason_;
    if (changed) since_ = reactor_.now();
    reason_ = std::move(reason);
    timer_.arm(reactor_.now() + delay);
    if (changed) tell_state();
}

void Volume::check() {
    look_at_size();  // that a read has found, and a write that was under way may have undone
    if (const auto error = storage_->check()) {
        gone_ = true;
        size_before_ = geometry_.size_bytes;
        delay_ = retry_delay_min;
        const std::string trouble = storage_->trouble();  // names the storage itself
        wait((trouble.empty() ? storage_->description() + " has vanished: " + error.message()
                              : trouble) +
             "; requests of those who have it open fail");
        return;
    }
    look_for_progress();
    log_trouble();
    look_at_size();
    timer_.arm(reactor_.now() + check_interval);
}

std::string Volume::reason() const {
    if (state() == State::waiting) return reason_;
    if (std::string trouble = this->trouble(); !trouble.empty()) return trouble;
    return flushes_fail() ? why_flushes_fail_ : shortage_;
}

std::uint64_t Volume::ended() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& open : opens_) sum += open->ended;
    return sum;
}

void Volume::look_for_progress() {
    const std::uint64_t ended_now = ended();
    const bool ends = std::exchange(ended_then_, ended_now) != ended_now;
    if (ends || in_flight() == 0) {
        stands_since_.reset();
    } else if (!stands_since_) {
        stands_since_ = reactor_.now() - check_interval;
    }
}

// What keeps requests waiting: what the storage knows of itself, or that none ends. A disk that
// hangs says nothing; nor does the kernel, for minutes or for ever.
std::string Volume::trouble() const {
    if (std::string known = storage_->trouble(); !known.empty()) return known;
    const std::uint64_t waiting = in_flight();
    if (waiting == 0 || !stands_since_ || ended() != ended_then_) return {};
    const rtrs::Duration stands_for = reactor_.now() - *stands_since_;
    if (stands_for < stands_still_after) return {};
    return fmt::format("{}: none of {} requests under way has ended for {} s",
                       storage_->description(), waiting, stands_for / 1s);
}

void Volume::log_trouble() {
    const std::string trouble = this->trouble();
    if (trouble.empty() != in_trouble_) return;
    in_trouble_ = !trouble.empty();
    if (in_trouble_) {
        logger("rnbd.volume").warn("{}: requests wait: {}", config_.name, trouble);
    } else {
        logger("rnbd.volume").info("{}: requests go on", config_.name);
    }
}

void Volume::flush(std::function<void(std::error_code error)> done) {
    timer_.disarm();
    drop_found();
    if (only_reads() || (!storage_ && !parting_.under_way())) {
        // If the storage is gone, its parting flush was the last one.
        reactor_.post([done = std::move(done), error = parting_error_] { done(error); });
        return;
    }
    flushed_ = std::move(done);
    // A storage that is gone is released first.
    if (state() == State::waiting) return timer_.arm(reactor_.now());
    last_flush_ =
        std::make_unique<LastFlush>(*this, [](BlockRequest& request, std::error_code error) {
            auto& flush = static_cast<LastFlush&>(request);
            Volume& volume = flush.volume;
            flush.over = true;
            if (error) {
                logger("rnbd.volume").error("{}: last flush: {}", volume.name(), error.message());
            } else {
                volume.cache_.flushed();
            }
            std::exchange(volume.flushed_, nullptr)(error);
        });
    last_flush_->operation = BlockOperation::flush;
    storage_->submit(*last_flush_);
}

void Volume::part() {
    auto flush = only_reads() ? nullptr : storage_->flush_aside();
    std::string from = storage_->description();
    storage_.reset();
    medium_claim_.reset();
    if (flush) parting_.begin(std::move(flush), std::move(from), reactor_.now());
}

bool Volume::has_parted() {
    if (!parting_.under_way()) return true;
    const auto result = parting_.take_result(reactor_.now());
    if (!result) return false;
    parting_error_ = *result;
    if (parting_error_) {
        logger("rnbd.volume")
            .error(
                "{}: {}: last flush: {}; acknowledged writes may be lost, and the next flush "
                "says so",
                config_.name, parting_.from(), parting_error_.message());
    }
    cache_.left(static_cast<bool>(parting_error_));
    return true;
}

void Volume::give_up() {
    if (parting_.under_way()) {
        parting_.give_up(reactor_.now());
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
