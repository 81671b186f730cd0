#include "rnbd-server/storage/nbd_storage.h"

#include <libnbd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <utility>

#include "rnbd-server/storage/medium_identity.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/member_call.h"
#include "rtrs/base/random.h"

namespace rnbd {

using rtrs::from_errno;

namespace {

// Written at once by write_zeroes where the server has no zeroes.
constexpr std::size_t zeroes_bytes = 1u << 20;
// Of discards and zeroes: a multiple of all block sizes that every server takes.
constexpr std::uint64_t range_bytes_max = 1u << 30;
// Of reads and writes, if the server does not say: what all servers take.
constexpr std::uint64_t transfer_bytes_default = 32u << 20;

using namespace std::chrono_literals;

constexpr rtrs::Duration reconnect_delay_min = 20ms;
constexpr rtrs::Duration reconnect_delay_max = 1s;

// unforced: what has failed with FUA, once more without it.
enum class Stage : std::uint8_t { data, unforced, flush };
constexpr std::uint32_t stage_mask = 0xff;
// Beside its stage: it was lost with a connection, or waited for one, and is on its way again.
constexpr std::uint32_t sent_again = 1u << 8;
// It is counted in plain_under_way_.
constexpr std::uint32_t plain_change = 1u << 9;
// The rest: how many syncs had failed when it was sent first.
constexpr unsigned syncs_shift = 10;

bool is(Stage stage, const BlockRequest& request) {
    return (request.stage & stage_mask) == static_cast<std::uint32_t>(stage);
}

void enter(Stage stage, BlockRequest& request) {
    request.stage = static_cast<std::uint32_t>(stage) | (request.stage & ~stage_mask);
}

std::unexpected<StorageError> refuse(int error, const std::string& uri, const std::string& text) {
    return std::unexpected(StorageError{from_errno(error), uri + ": " + text});
}

// Why an export is of no use to a storage with these blocks; empty if it is.
std::string misfit(nbd_handle* handle, std::uint32_t block) {
    const std::int64_t least = nbd_get_block_size(handle, LIBNBD_SIZE_MINIMUM);
    const std::int64_t most = nbd_get_block_size(handle, LIBNBD_SIZE_MAXIMUM);
    if (least > block) {
        return "has blocks of " + std::to_string(least) + " bytes, more than block_size " +
               std::to_string(block);
    }
    if (most > 0 && most < block) {
        return "takes requests of at most " + std::to_string(most) +
               " bytes, less than block_size " + std::to_string(block);
    }
    return "";
}

bool changes(const BlockRequest& request) { return request.operation != BlockOperation::read; }

bool changes_data(const BlockRequest& request) {
    return changes(request) && request.operation != BlockOperation::flush;
}

// The library takes a structured reply for complete whatever came in it.
int count_arrived(void* context, const void* /*data*/, std::size_t bytes, std::uint64_t /*at*/,
                  unsigned status, int* /*error*/) {
    auto& request = *static_cast<BlockRequest*>(context);
    if (status == LIBNBD_READ_ERROR) return 0;
    // A server may send the same again, without end.
    request.arrived_bytes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(request.arrived_bytes + bytes, transfer_bytes_default));
    return 0;
}

std::uint64_t another_epoch() { return rtrs::Random::from_entropy().next() | 2; }

StorageGeometry describe(nbd_handle* handle, const StorageOptions& options) {
    const bool flush = nbd_can_flush(handle) == 1;
    const bool trim = nbd_can_trim(handle) == 1;
    const auto preferred = nbd_get_block_size(handle, LIBNBD_SIZE_PREFERRED);
    return {.size_bytes = static_cast<std::uint64_t>(nbd_get_size(handle)),
            .logical_block_bytes = options.logical_block_bytes,
            .physical_block_bytes = static_cast<std::uint32_t>(
                std::clamp<std::int64_t>(preferred, 4096, 1 << 20) / 4096 * 4096),
            .discard_bytes_max = trim ? range_bytes_max : 0,
            .discard_granularity_bytes = trim ? 4096u : 0u,
            .write_zeroes_bytes_max = range_bytes_max,
            .fast_zero = nbd_can_fast_zero(handle) == 1,
            .volatile_cache = flush,
            .force_unit_access = true,
            .extents = false,
            .cache_epoch = another_epoch(),
            .medium = place_medium_id(options.uri)};
}

}  // namespace

std::expected<std::unique_ptr<Storage>, StorageError> NbdStorage::open(
    rtrs::Reactor& reactor, DeferredCompletions& deferred, const StorageOptions& options,
    DescriptorRoom::For whom) {
    auto link = NbdLink::open(options.uri, whom);
    if (!link) return std::unexpected(link.error());
    nbd_handle* const handle = (*link)->handle();
    const std::int64_t size = nbd_get_size(handle);
    const std::uint32_t block = options.logical_block_bytes;
    // The library has no more than that, and lets larger ones through as negative.
    if (size < 0) return refuse(EINVAL, options.uri, "is larger than 2^63 - 1 bytes");
    if (size == 0) return refuse(EINVAL, options.uri, "is empty");
    if (size % block != 0) {
        return refuse(EINVAL, options.uri,
                      "has " + std::to_string(size) + " bytes, not a multiple of block_size " +
                          std::to_string(block));
    }
    if (options.size_bytes && *options.size_bytes != static_cast<std::uint64_t>(size)) {
        return refuse(EINVAL, options.uri,
                      "has " + std::to_string(size) + " bytes, not the size that is given");
    }
    if (const std::string why = misfit(handle, block); !why.empty()) {
        return refuse(EINVAL, options.uri, why);
    }
    if (options.use == StorageOptions::Use::read_write && nbd_is_read_only(handle) == 1) {
        return refuse(EROFS, options.uri, "is read-only: expected read_only: true");
    }
    auto zeroes = Mapping::make(zeroes_bytes, Mapping::Access::read_only);
    if (!zeroes) return refuse(ENOMEM, options.uri, "no memory");
    const StorageGeometry geometry = describe(handle, options);
    return std::unique_ptr<Storage>(
        new NbdStorage(reactor, deferred, options, geometry, std::move(*zeroes), std::move(*link)));
}

NbdStorage::NbdStorage(rtrs::Reactor& reactor, DeferredCompletions& deferred,
                       const StorageOptions& options, StorageGeometry geometry, Mapping zeroes,
                       std::unique_ptr<NbdLink> link)
    : reactor_(reactor),
      uri_(options.uri),
      use_(options.use),
      geometry_(geometry),
      zeroes_(std::move(zeroes)),
      deferred_(deferred),
      reconnect_timer_(reactor, this, rtrs::member_call<&NbdStorage::reconnect>),
      reconnect_delay_(reconnect_delay_min),
      hold_time_(options.nbd_hold_time),
      hold_timer_(reactor, this, rtrs::member_call<&NbdStorage::fail_held>) {
    connected(std::move(link));
}

NbdStorage::~NbdStorage() {
    RTRS_ASSERT(in_flight_ == 0 && held_.empty() && unfinished_.empty());
    RTRS_ASSERT(flushing_ == nullptr && waiting_to_flush_.empty());
    RTRS_ASSERT(plain_under_way_ == 0);
    if (link_ != nullptr) link_->detach();
}

// --- Requests.

void NbdStorage::submit(BlockRequest& request) {
    RTRS_ASSERT(request.offset + request.bytes <= geometry_.size_bytes);
    request.storage = this;
    request.stage = 0;
    start(request);
}

void NbdStorage::start(BlockRequest& request) {
    request.done_bytes = 0;
    const bool flush = request.operation == BlockOperation::flush;
    enter(flush ? Stage::flush : Stage::data, request);
    if (changes(request) && !flush && use_ == StorageOptions::Use::read_only) {
        request.failed_alone = true;
        return end(request, from_errno(EROFS));
    }
    if (flush && (!can_flush_ || use_ == StorageOptions::Use::read_only)) {
        return end(request, {});
    }
    if (link_ == nullptr || server_leaves_) return hold(request);
    // Of this connection, whatever clients were told.
    const bool trims = request.operation == BlockOperation::discard;
    if ((request.fast_only && !geometry_.fast_zero) ||
        (trims && geometry_.discard_bytes_max == 0)) {
        request.failed_alone = (request.stage & sent_again) == 0;
        return end(request, from_errno(EOPNOTSUPP));
    }
    note_start(request);
    send(request);
    link_->sent();
}

void NbdStorage::note_start(BlockRequest& request) noexcept {
    constexpr std::uint32_t noted = (1u << syncs_shift) - 1;
    request.stage = (request.stage & noted) | (syncs_failed_ << syncs_shift);
    if (!changes_data(request) || request.force_unit_access) return;
    request.stage |= plain_change;
    ++plain_under_way_;
}

// The server has it no more, or never had.
void NbdStorage::note_end(BlockRequest& request) noexcept {
    if ((request.stage & plain_change) == 0) return;
    request.stage &= ~plain_change;
    --plain_under_way_;
}

// What the server has taken, and will not be covered by a flush that succeeds after it has told of
// a failure: what it has answered, and what it may have taken and not answered yet.
bool NbdStorage::at_stake() const noexcept {
    return acknowledged_ > lost_ever_ || plain_under_way_ > 0;
}

bool NbdStorage::sync_failed_beside(const BlockRequest& request) const noexcept {
    return request.stage >> syncs_shift != (syncs_failed_ << syncs_shift) >> syncs_shift;
}

std::uint64_t NbdStorage::piece_bytes(const BlockRequest& request) const noexcept {
    const std::uint64_t left = request.bytes - request.done_bytes;
    switch (request.operation) {
        case BlockOperation::read:
        case BlockOperation::write:
            return std::min(left, transfer_bytes_max_);
        case BlockOperation::write_zeroes:
            if (can_zero_) break;
            return std::min({left, std::uint64_t{zeroes_bytes}, transfer_bytes_max_});
        case BlockOperation::discard:
        case BlockOperation::flush:
            break;
    }
    return std::min(left, range_bytes_max);
}

// One piece of what is left of it, or the flush behind it.
void NbdStorage::send(BlockRequest& request) {
    nbd_handle* const handle = link_->handle();
    const nbd_completion_callback done{
        .callback =
            [](void* context, int* error) {
                auto& finished = *static_cast<BlockRequest*>(context);
                static_cast<NbdStorage*>(finished.storage)->answered(finished, *error);
                return 1;
            },
        .user_data = &request,
        .free = nullptr};
    const std::uint64_t at = request.offset + request.done_bytes;
    const std::uint64_t bytes = piece_bytes(request);
    const bool forced = request.force_unit_access && can_fua_ && !is(Stage::unforced, request);
    const std::uint32_t fua = forced ? LIBNBD_CMD_FLAG_FUA : 0;
    if (is(Stage::flush, request) && flushing_ != nullptr) {
        return waiting_to_flush_.push_back(&request);
    }
    ++in_flight_;
    if (is(Stage::flush, request)) {
        flushing_ = &request;
        flushing_too_ = std::exchange(waiting_to_flush_, {});
        // What it covers.
        request.done_bytes = acknowledged_;
        for (BlockRequest* each : flushing_too_) each->done_bytes = acknowledged_;
        return sent_or_refused(request, nbd_aio_flush(handle, done, 0));
    }
    const bool zeroes = request.operation == BlockOperation::write_zeroes;
    if (request.operation == BlockOperation::read) {
        std::byte* const target = request.data.data() + request.done_bytes;
        request.arrived_bytes = 0;
        const nbd_chunk_callback arrived{
            .callback = count_arrived, .user_data = &request, .free = nullptr};
        return sent_or_refused(
            request, nbd_aio_pread_structured(handle, target, bytes, at, arrived, done, 0));
    }
    if (request.operation == BlockOperation::discard) {
        return sent_or_refused(request, nbd_aio_trim(handle, bytes, at, done, fua));
    }
    if (zeroes && can_zero_) {
        const std::uint32_t flags = fua | (request.no_unmap ? LIBNBD_CMD_FLAG_NO_HOLE : 0) |
                                    (request.fast_only ? LIBNBD_CMD_FLAG_FAST_ZERO : 0);
        return sent_or_refused(request, nbd_aio_zero(handle, bytes, at, done, flags));
    }
    const std::byte* const source =
        zeroes ? zeroes_.bytes().data() : request.data.data() + request.done_bytes;
    sent_or_refused(request, nbd_aio_pwrite(handle, source, bytes, at, done, fua));
}

// What the library refused was not sent, and its callback is not called.
void NbdStorage::sent_or_refused(BlockRequest& request, std::int64_t cookie) {
    if (cookie >= 0) return;
    const int error = nbd_get_errno();
    --in_flight_;
    if (&request == flushing_) {
        return flush_ended([&](BlockRequest& each) {
            link_->alive() ? end(each, from_errno(error != 0 ? error : EIO)) : lost_under_way(each);
        });
    }
    if (link_->alive()) return end(request, from_errno(error != 0 ? error : EIO));
    const bool was_sent = request.done_bytes > 0 || !is(Stage::data, request);
    if (was_sent) return lost_under_way(request);
    hold(request);
}

// From inside of the library: nothing may be asked of it here, so the next piece waits.
void NbdStorage::answered(BlockRequest& request, int error) {
    --in_flight_;
    heard_ = true;
    if (&request != flushing_) return take_answer(request, error);
    flush_ended([&](BlockRequest& each) { take_answer(each, error); });
}

// One flush at a time: of two that overlap the server may tell a failure to one, and answer the
// other first. Those that came meanwhile share the next.
void NbdStorage::flush_ended(const std::function<void(BlockRequest&)>& take) {
    take(*std::exchange(flushing_, nullptr));
    for (BlockRequest* request : std::exchange(flushing_too_, {})) take(*request);
    if (waiting_to_flush_.empty()) return;
    if (!link_->alive()) return give_up_waiting_to_flush();
    unfinished_.push_back(waiting_to_flush_.back());
    waiting_to_flush_.pop_back();
}

void NbdStorage::give_up_waiting_to_flush() {
    for (BlockRequest* request : std::exchange(waiting_to_flush_, {})) lost_under_way(*request);
}

void NbdStorage::take_answer(BlockRequest& request, int error) {
    // The library's own word for what ended with its connection; no server can send it.
    if (error == ENOTCONN || !link_->alive()) return lost_under_way(request);
    if (error == ESHUTDOWN) return refused_by_leaving(request);
    if (error != 0) return failed(request, from_errno(error));
    const bool short_read =
        request.operation == BlockOperation::read && request.arrived_bytes < piece_bytes(request);
    if (short_read) return failed(request, from_errno(EIO));
    piece_done(request);
}

// A sync that fails may be all that the server ever says of what it cannot write back, whoever
// wrote that. A flush says so. A change with FUA fails, too, because it cannot be made: once more
// without FUA it shows which. If any of it can be made, writing back it was. Flushes that have
// succeeded meanwhile prove nothing, so what they cover counts, too.
void NbdStorage::failed(BlockRequest& request, std::error_code error) {
    const bool forced = changes(request) && request.force_unit_access && can_fua_;
    if (at_stake() && forced && is(Stage::data, request)) {
        request.done_bytes = 0;
        enter(Stage::unforced, request);
        return unfinished_.push_back(&request);
    }
    if (is(Stage::flush, request)) {
        ++syncs_failed_;
        if (at_stake()) cache_is_another();
    }
    end(request, error);
}

void NbdStorage::piece_done(BlockRequest& request) {
    if (is(Stage::unforced, request)) {
        ++syncs_failed_;
        if (at_stake()) cache_is_another();
        return end(request, from_errno(EIO));
    }
    if (is(Stage::flush, request)) flushed_ = std::max(flushed_, request.done_bytes);
    if (is(Stage::data, request)) {
        request.done_bytes += piece_bytes(request);
        const bool complete = request.done_bytes == request.bytes;
        const bool flush_behind =
            complete && request.force_unit_access && !can_fua_ && can_flush_ && changes(request);
        if (flush_behind) enter(Stage::flush, request);
        if (flush_behind || !complete) return unfinished_.push_back(&request);
        if (changes(request) && !request.force_unit_access) ++acknowledged_;
    }
    // Its data may be what the server has told of, to somebody else, and dropped: it is no more
    // among what the flush behind it covers.
    const bool forced = changes_data(request) && request.force_unit_access;
    if (forced && sync_failed_beside(request)) return end(request, from_errno(EIO));
    end(request, {});
}

// The server has answered it, or it is not for the server.
void NbdStorage::end(BlockRequest& request, std::error_code error) {
    note_end(request);
    const bool last = forget_sent_again(request) && sent_again_ == 0;
    // Some may be held beside them, by a server that leaves.
    if (last && held_.empty() && !server_leaves_) stop_counting();
    deferred_.add(request, error);
}

bool NbdStorage::forget_sent_again(BlockRequest& request) noexcept {
    if ((request.stage & sent_again) == 0) return false;
    request.stage &= ~sent_again;
    --sent_again_;
    return true;
}

void NbdStorage::stop_counting() noexcept {
    hold_timer_.disarm();
    hold_time_over_ = false;
}

// The server is told to end, answers all that comes with this, and ends when we go. It has not done
// it, and so the whole request may be sent to its successor, behind whatever else.
void NbdStorage::refused_by_leaving(BlockRequest& request) {
    server_leaves_ = true;
    reason_ = "the NBD server is about to end";
    count_hold_time();
    // What it would have shown is not asked again.
    if (is(Stage::unforced, request) && at_stake()) cache_is_another();
    request.done_bytes = 0;
    hold(request);
}

void NbdStorage::count_hold_time() {
    if (!hold_timer_.armed() && !hold_time_over_) hold_timer_.arm(reactor_.now() + hold_time_);
}

void NbdStorage::lost_under_way(BlockRequest& request) {
    const bool again = !changes_data(request);
    note_end(request);
    forget_sent_again(request);
    if (!again) return deferred_.add(request, from_errno(EIO));
    request.done_bytes = 0;
    hold(request);
}

void NbdStorage::hold(BlockRequest& request) {
    note_end(request);
    forget_sent_again(request);
    if (broken_ || given_up_ || hold_time_over_) return deferred_.add(request, from_errno(EIO));
    held_.push_back(&request);
}

// --- The link.

std::string NbdStorage::trouble() const {
    // Less is a long flush.
    constexpr std::uint32_t many = 5;
    if (link_ != nullptr && !server_leaves_) {
        const bool silent = unheard_checks_ >= many && !heard_;
        return silent ? uri_ + ": the NBD server does not answer" : "";
    }
    // What went wrong with a connection names it already.
    const std::string whose = uri_ + ": ";
    const std::string why = reason_.starts_with(whose) ? reason_.substr(whose.size()) : reason_;
    return whose + (broken_ ? "" : "connecting again after: ") + why;
}

void NbdStorage::connected(std::unique_ptr<NbdLink> link) {
    nbd_handle* const handle = link->handle();
    const std::int64_t most = nbd_get_block_size(handle, LIBNBD_SIZE_MAXIMUM);
    transfer_bytes_max_ = transfer_bytes_default;
    if (most > 0) {
        const auto said = static_cast<std::uint64_t>(most);
        transfer_bytes_max_ = std::min(said, transfer_bytes_default) /
                              geometry_.logical_block_bytes * geometry_.logical_block_bytes;
    }
    can_zero_ = nbd_can_zero(handle) == 1;
    can_flush_ = nbd_can_flush(handle) == 1;
    can_fua_ = nbd_can_fua(handle) == 1;
    geometry_.fast_zero = nbd_can_fast_zero(handle) == 1;
    geometry_.discard_bytes_max = nbd_can_trim(handle) == 1 ? range_bytes_max : 0;
    connected_at_ = reactor_.now();
    link_ = &NbdLink::attach(std::move(link), reactor_, *this);
    if (flushed_ < acknowledged_) cache_is_another();
    std::vector<BlockRequest*> waited;
    waited.swap(held_);
    if (waited.empty()) return stop_counting();
    for (BlockRequest* request : waited) request->stage |= sent_again;
    sent_again_ += static_cast<std::uint32_t>(waited.size());
    for (BlockRequest* request : waited) start(*request);
}

void NbdStorage::cache_is_another() {
    flushed_ = lost_ever_ = acknowledged_;
    geometry_.cache_epoch = another_epoch();
    if (lost_) lost_();
}

void NbdStorage::on_link_ready() {
    std::vector<BlockRequest*> now;
    now.swap(unfinished_);
    for (BlockRequest* request : now) {
        if (server_leaves_) {
            refused_by_leaving(*request);
        } else {
            send(*request);
        }
    }
    // What it still has it answers until the hold time is over, or its end does.
    if (server_leaves_ && (in_flight_ == 0 || hold_time_over_)) link_->cut();
}

void NbdStorage::on_link_lost(const std::string& reason) {
    if (!server_leaves_) reason_ = reason;
    for (BlockRequest* request : std::exchange(unfinished_, {})) lost_under_way(*request);
    give_up_waiting_to_flush();
    std::exchange(link_, nullptr)->detach();
    const bool left = std::exchange(server_leaves_, false);
    if (given_up_) return;
    // A server that ends each connection soon is not dialled more often than one that is away.
    const bool lasted = reactor_.now() - connected_at_ >= reconnect_delay_max;
    if (lasted) reconnect_delay_ = reconnect_delay_min;
    const bool at_once = lasted && !left;
    reconnect_timer_.arm(reactor_.now() + (at_once ? rtrs::Duration::zero() : grown_delay()));
    count_hold_time();
}

void NbdStorage::reconnect() {
    auto link = NbdLink::open(uri_, DescriptorRoom::For::returning);
    if (!link) {
        reason_ = link.error().text;
        const bool shaking = link.error().code == std::errc::operation_in_progress;
        reconnect_timer_.arm(reactor_.now() + (shaking ? reconnect_delay_min : grown_delay()));
        return;
    }
    const bool same =
        nbd_get_size((*link)->handle()) == static_cast<std::int64_t>(geometry_.size_bytes) &&
        (use_ == StorageOptions::Use::read_only || nbd_is_read_only((*link)->handle()) == 0) &&
        // Those who were told that nothing needs a flush would not flush.
        (geometry_.volatile_cache || nbd_can_flush((*link)->handle()) != 1) &&
        misfit((*link)->handle(), geometry_.logical_block_bytes).empty();
    if (same) return connected(std::move(*link));
    broken_ = true;
    reason_ = "its size, its blocks or its rights have changed, or it has a cache now";
    fail_held();
}

// The delay before the next dial; the one after it is twice as long.
rtrs::Duration NbdStorage::grown_delay() noexcept {
    return std::exchange(reconnect_delay_, std::min(2 * reconnect_delay_, reconnect_delay_max));
}

void NbdStorage::fail_held() {
    hold_time_over_ = true;
    for (BlockRequest* request : std::exchange(held_, {})) {
        deferred_.add(*request, from_errno(EIO));
    }
    // It says that it leaves, and does not answer what it still has.
    if (server_leaves_ && link_ != nullptr) link_->cut();
}

// Its connection is cut: what is under way ends as it does when the server goes.
std::string NbdStorage::give_up() {
    const std::size_t unanswered = in_flight_ + held_.size() + unfinished_.size() +
                                   flushing_too_.size() + waiting_to_flush_.size();
    if (given_up_ || unanswered == 0) return "";
    given_up_ = true;
    std::string text = "requests that it has not answered fail (" + std::to_string(unanswered) +
                       "); those that change data may still be done there, or never";
    if (flushed_ < acknowledged_) {
        text += "; acknowledged writes that no flush has covered may be lost (" +
                std::to_string(acknowledged_ - flushed_) + ")";
    }
    reconnect_timer_.disarm();
    hold_timer_.disarm();
    fail_held();
    if (link_ != nullptr) link_->cut();
    return text;
}

// What is there now is another one: what the former had not flushed is out of reach.
std::function<std::error_code()> NbdStorage::flush_aside() {
    if (flushed_ >= acknowledged_) return {};
    return [] { return from_errno(EIO); };
}

std::error_code NbdStorage::check() noexcept {
    const bool answers = std::exchange(heard_, false) || in_flight_ == 0;
    unheard_checks_ = answers ? 0 : unheard_checks_ + 1;
    return broken_ ? from_errno(ENODEV) : std::error_code{};
}

}  // namespace rnbd
