// How a RemoteVolume is opened at the server: at first, each time when the link comes back, and
// when the server has news of it.

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "rnbd/remote_session_inside.h"
#include "rnbd/remote_volume_inside.h"

namespace rnbd {
namespace {

using namespace std::chrono_literals;

constexpr rtrs::Duration retry_delay_min = 50ms;
constexpr rtrs::Duration retry_delay_max = 2s;
constexpr rtrs::Duration awaited_retry_delay = 250ms;
// While the server's catalog says that nothing has changed. An event ends it early.
constexpr rtrs::Duration known_retry_delay = 1min;
constexpr const char* gone_text =
    "its storage is gone at the server: requests fail until it is back";
constexpr const char* another_writer_text =
    "another writer has written to it while this session was away, and nothing here depends on "
    "what it held before: it is being opened again, as a new writer";
constexpr std::uint64_t sectors_max = (std::uint64_t{1} << 63) / sector_bytes - 1;

}  // namespace

// Rejects what a broken server may say of a volume; everything above relies on these properties.
bool RemoteVolume::Inside::usable(const OpenResponse& response) const {
    const std::uint32_t block = response.logical_block_bytes;
    return std::has_single_bit(block) && block >= sector_bytes &&
           block <= session.session.max_io_bytes() && response.sectors <= sectors_max;
}

// OPEN says which medium is expected, but the user may have read or written for the first time
// since OPEN was sent. So the answer is checked here, too.
bool RemoteVolume::Inside::is_another(const MediumId& found) const noexcept {
    return has(session.features, Feature::medium) && knows_medium && medium.rules_out(found);
}

bool RemoteVolume::Inside::blocks_fit(std::uint32_t bytes) const noexcept {
    return blocks_limit == 0 || bytes <= blocks_limit;
}

void RemoteVolume::Inside::limit_blocks(std::uint32_t bytes) {
    blocks_limit = bytes;
    // The users that could not handle the larger blocks have gone.
    if (blocks_refused != 0 && blocks_fit(blocks_refused)) (void)open_again();
}

// A disk may end with a part of a block, which no request can address. None: no disk is so large.
std::optional<std::uint64_t> RemoteVolume::Inside::usable_part(std::uint64_t size_bytes) const {
    if (size_bytes / sector_bytes > sectors_max) return std::nullopt;
    return size_bytes - size_bytes % geometry.logical_block_bytes;
}

// The server refuses requests beyond a new end; they were in range when they were made.
void RemoteVolume::Inside::resized(std::uint64_t size_bytes) {
    if (asking) size_heard = size_bytes;
    if (state != VolumeState::open) return;
    const auto usable_bytes = usable_part(size_bytes);
    if (!usable_bytes || *usable_bytes == geometry.size_bytes) return;
    report_resize(std::exchange(geometry.size_bytes, *usable_bytes));
}

void RemoteVolume::Inside::report_resize(std::uint64_t bytes_before) {
    session.environment.tracer.trace(rtrs::TraceLevel::info, "rnbd.volume",
                                     session.session.options().name + "/" + options.name,
                                     "resized from " + std::to_string(bytes_before) + " to " +
                                         std::to_string(geometry.size_bytes) + " bytes");
    handler.on_volume_changed(self);
}

std::error_code RemoteVolume::Inside::set_size(std::uint64_t size_bytes) {
    if (state != VolumeState::open) return rtrs::from_errno(ENOENT);
    if (usable_part(size_bytes) != size_bytes) return rtrs::from_errno(EINVAL);
    resized(size_bytes);
    return {};
}

void RemoteVolume::Inside::link_ready() {
    refusals = 0;
    if (closing) return close_if_idle();
    // Requests on a path that was lost after the volume was superseded are held only now.
    if (state == VolumeState::superseded) return fail_all_held(open_error);
    send_open();
}

void RemoteVolume::Inside::link_lost(std::error_code why) {
    retry_timer.disarm();
    open_at_server = false;
    if (closing) {
        // The server closes the volumes of a lost session itself.
        close_if_idle();
        return;
    }
    if (state == VolumeState::closed || state == VolumeState::superseded) return;
    open_error.clear();  // the server that comes back may answer otherwise
    set_state(state == VolumeState::opening ? VolumeState::opening : VolumeState::reopening,
              "the session has no path: " + why.message());
}

void RemoteVolume::Inside::look_again() {
    if (closing) return;
    // The answer that is on its way may be older than the news.
    if (asking) {
        asks_again = true;
        return;
    }
    retry_timer.disarm();
    send_open();
}

void RemoteVolume::Inside::storage_is_gone() {
    if (closing || state != VolumeState::open) return;
    set_state(VolumeState::open, gone_text);
}

bool RemoteVolume::Inside::storage_is_known_to_be_gone() const {
    const auto& entries = session.catalog.entries();
    const auto entry = entries.find(options.name);
    return session.catalog.known() && entry != entries.end() && entry->second.waiting;
}

bool RemoteVolume::Inside::blocks_are_known_to_be_refused() const {
    if (blocks_refused == 0 || !session.catalog.known()) return false;
    const auto& entries = session.catalog.entries();
    const auto entry = entries.find(options.name);
    return entry != entries.end() && entry->second.block_bytes == blocks_refused;
}

// For an open volume the timer was armed because a request failed, so that it is not known whether
// the volume is still open at the server.
void RemoteVolume::Inside::try_again() {
    if (state == VolumeState::open && storage_is_known_to_be_gone()) return;
    send_open();
}

void RemoteVolume::Inside::send_open() {
    if (closing || asking || !session.ready || state == VolumeState::superseded) return;
    if (session.may_still_run_for(options.name)) {
        // It would undo what is written from now on. on_settled() goes on.
        return set_state(state == VolumeState::open ? VolumeState::reopening : state,
                         rtrs::why_unsettled);
    }
    asking = true;
    asks_again = false;
    size_heard.reset();
    maybe_open_at_server = true;
    const OpenMessage open{
        .access_mode = options.access,
        .device_name = options.name,
        .writer = has(session.features, Feature::writer) ? writer : 0,
        .medium = has(session.features, Feature::medium) && knows_medium ? medium : MediumId{}};
    std::byte message[OpenMessage::wire_bytes_max];
    open.emit(message);
    session.session.submit_user(
        rtrs::Direction::read, std::span(message).first(open.size()),
        OpenResponse::size(session.features),
        [](void* context, std::error_code error, rtrs::Bytes response) {
            static_cast<Inside*>(context)->open_answered(error, response);
        },
        this);
}

void RemoteVolume::Inside::open_answered(std::error_code error, rtrs::Bytes response) {
    asking = false;
    blocks_refused = 0;
    // ENODEV may be the answer for a volume that is open at the server and whose storage is gone.
    const bool not_open = error && !unanswered(error) && error != std::errc::no_such_device;
    if (not_open) maybe_open_at_server = false;
    if (closing) return answered_while_closing(error, response);
    if (unanswered(error)) {
        // If the link was lost, the next link_ready() asks again. If another path is left, ask
        // soon.
        if (session.ready) retry_timer.arm(session.environment.clock.now() + retry_delay_min);
        return;
    }
    if (!error) {
        error = accept(response);
        if (!error) return;
    }
    const bool stale = error == rtrs::from_errno(ESTALE) && has(session.features, Feature::writer);
    if (stale && knows_content) return supersede();
    if (stale && become_another_writer()) return;
    open_refused(error);
}

// What was opened for nobody has to be closed at the server.
void RemoteVolume::Inside::answered_while_closing(std::error_code error, rtrs::Bytes response) {
    const auto parsed =
        error ? std::unexpected(ParseError::too_short) : OpenResponse::parse(response);
    if (parsed) {
        device_id = parsed->device_id;
        open_at_server = session.ready;
        session.id_was_given(device_id, this);
    }
    close_if_idle();
}

// The volume is open at the server. Returns why it is not accepted here.
std::error_code RemoteVolume::Inside::accept(rtrs::Bytes response) {
    const auto parsed = OpenResponse::parse(response);
    if (parsed) session.id_was_given(parsed->device_id, this);
    const bool another = parsed && is_another(parsed->medium);
    const bool sound = parsed && usable(*parsed);
    const bool too_large = sound && !another && !blocks_fit(parsed->logical_block_bytes);
    // A kernel's server opens a block device that has lost its medium, too.
    const bool empty = sound && !another && !too_large && parsed->sectors == 0;
    if (sound && !another && !too_large && !empty) {
        opened(*parsed);
        return {};
    }
    if (too_large) blocks_refused = parsed->logical_block_bytes;
    if (parsed) {
        device_id = parsed->device_id;
        open_at_server = true;
    }
    if (another || too_large || empty) give_back();
    if (empty) return rtrs::from_errno(ENOMEDIUM);
    if (another || too_large) return rtrs::from_errno(EMEDIUMTYPE);
    wrong_answer = wrong_with(parsed, response.size());
    return rtrs::Error::protocol;
}

// The user holds nothing that could be lost: the volume was never used, or the answer that it is
// open was lost. That is no refusal of this user, who is another writer from now on. Returns
// whether it asks as that one; not if it has done so since it was open.
bool RemoteVolume::Inside::become_another_writer() {
    writer = draw_writer();
    if (std::exchange(writer_drawn_anew, true)) return false;
    if (state == VolumeState::open) set_state(VolumeState::reopening, another_writer_text);
    ask_later();
    return true;
}

void RemoteVolume::Inside::open_refused(std::error_code error) {
    const rtrs::Duration delay = retry_delay(error);
    asks_again = false;
    ++refusals;
    open_error = error;
    retry_timer.arm(session.environment.clock.now() + delay);
    set_state(state == VolumeState::open ? VolumeState::reopening : state, why_refused(error));
    handler.on_volume_refused(self);
}

rtrs::Duration RemoteVolume::Inside::retry_delay(std::error_code error) const {
    // To ask opens it for a moment: others would be refused meanwhile, and the server's log would
    // be full of it.
    if (blocks_are_known_to_be_refused()) return known_retry_delay;
    rtrs::Duration delay = retry_delay_min;
    for (std::uint32_t i = 0; i < refusals && delay < retry_delay_max; ++i) delay *= 2;
    if (asks_again) delay = retry_delay_min;
    // The server answers EAGAIN only for some seconds.
    if (error == rtrs::from_errno(EAGAIN)) delay = std::min(delay, awaited_retry_delay);
    return std::min(delay, retry_delay_max);
}

// Closes a volume that was opened at the server but is not accepted here: others may want it.
void RemoteVolume::Inside::give_back() {
    asking = true;
    send_close([](void* context, std::error_code error, rtrs::Bytes) {
        auto& inside = *static_cast<Inside*>(context);
        inside.asking = false;
        if (!unanswered(error)) inside.open_at_server = inside.maybe_open_at_server = false;
        if (inside.closing) return inside.close_if_idle();
        if (inside.asks_again) return inside.look_again();
        inside.ask_later();
    });
}

void RemoteVolume::Inside::open_soon() {
    if (closing || asking || state == VolumeState::open) return;
    retry_timer.arm(session.environment.clock.now());
}

void RemoteVolume::Inside::ask_later() {
    if (!session.ready || asking || retry_timer.armed()) return;
    retry_timer.arm(session.environment.clock.now() + retry_delay_min);
}

std::string RemoteVolume::Inside::wrong_with(const std::expected<OpenResponse, ParseError>& parsed,
                                             std::size_t bytes) const {
    const std::string what = "the server's answer to OPEN cannot be used: found ";
    if (!parsed) {
        return parsed.error() == ParseError::too_short
                   ? what + std::to_string(bytes) + " bytes, expected at least " +
                         std::to_string(OpenResponse::wire_bytes)
                   : what + "blocks of 0 bytes";
    }
    return what + "blocks of " + std::to_string(parsed->logical_block_bytes) + " bytes and " +
           std::to_string(parsed->sectors) + " sectors, expected a power of two from " +
           std::to_string(sector_bytes) + " to " + std::to_string(session.session.max_io_bytes()) +
           ", and at most " + std::to_string(sectors_max);
}

std::string RemoteVolume::Inside::why_refused(std::error_code error) const {
    if (error == rtrs::Error::protocol && !wrong_answer.empty()) return wrong_answer;
    if (error == rtrs::from_errno(ENOMEDIUM))
        return "it has 0 bytes at the server: its medium is away";
    std::string why = "the server refuses to open it: " + error.message();
    if (error == std::errc::permission_denied) {
        why += " (its allow list does not have this session";
        if (options.access == AccessMode::read_write) why += ", or only lets it read";
        if (options.access == AccessMode::migration) why += ", or not with access migration";
        why += ")";
    }
    if (error == std::errc::operation_not_permitted) why += " (it is open for writing elsewhere)";
    if (error == std::errc::resource_unavailable_try_again)
        why += " (those who had it open for writing are waited for)";
    if (error == std::errc::no_such_file_or_directory) {
        const auto& catalog = session.catalog;
        why += storage_is_known_to_be_gone() ? " (the export waits for its storage)"
               : catalog.known() && !catalog.entries().contains(options.name)
                   ? " (no such export)"
                   : " (no such export, or it waits for its storage)";
    }
    // This is what EBUSY means if our server says it; a kernel's server has other reasons.
    if (error == std::errc::device_or_resource_busy && session.features != Feature::none) {
        const auto intent = session.catalog.intent();
        why += !intent ? " (evicted by the server for a while, or it is being drained)"
               : *intent == ServerIntent::drain ? " (the server is being drained)"
                                                : " (evicted by the server for a while)";
    }
    if (blocks_refused != 0) {
        return "it has blocks of " + std::to_string(blocks_refused) +
               " bytes at the server now, and who uses it was told of " +
               std::to_string(blocks_limit) +
               ": set block_size back there, or end those who use it (a device: unmap and map it)";
    }
    if (error == rtrs::from_errno(EMEDIUMTYPE)) {
        const std::string uuid = to_text(medium.uuid);
        why += " (it stands for another file or device there than this volume" +
               (uuid.empty() ? ": bring that back if it is still there, as memory is not"
                             : ", whose uuid is " + uuid + ": bring that back") +
               ", or close and open it (a device: unmap and map it) to use what is there now)";
    }
    return why;
}

std::error_code RemoteVolume::Inside::open_again() {
    if (closing || state == VolumeState::closed) return rtrs::from_errno(ENODEV);
    if (state == VolumeState::open) return rtrs::from_errno(EALREADY);
    if (state == VolumeState::superseded) return rtrs::from_errno(ESTALE);
    if (!session.ready) return rtrs::from_errno(ECONNABORTED);
    open_error.clear();
    retry_timer.disarm();
    send_open();
    return {};
}

void RemoteVolume::Inside::opened(const OpenResponse& response) {
    device_id = response.device_id;
    open_at_server = true;
    refusals = 0;
    writer_drawn_anew = false;
    open_error.clear();
    const Feature features = session.features;
    const std::uint64_t size_before = geometry.size_bytes;
    const std::uint64_t epoch_before = unflushed.epoch();
    const MediumId medium_before = medium;
    geometry = {
        .logical_block_bytes = response.logical_block_bytes,
        // A power of two, as the logical block is, whatever the server says.
        .physical_block_bytes = std::bit_ceil(
            std::uint32_t{std::max(response.physical_block_bytes, response.logical_block_bytes)}),
        .discard_bytes_max = std::uint64_t{response.max_discard_sectors} * sector_bytes,
        .discard_granularity_bytes = response.discard_granularity_bytes,
        .write_zeroes_bytes_max = std::uint64_t{response.max_write_zeroes_sectors} * sector_bytes,
        .fast_zero = has(features, Feature::fast_zero),
        .extents = has(features, Feature::extents),
        .write_cache = response.write_back,
        .force_unit_access = response.fua};
    // If the answer is newer than the catalog's size, another event of the catalog is on its way.
    const auto heard = size_heard ? usable_part(*size_heard) : std::nullopt;
    geometry.size_bytes = heard.value_or(*usable_part(response.sectors * sector_bytes));
    if (has(features, Feature::epoch) && response.epoch != 0) note_epoch(response.epoch);
    if (has(features, Feature::medium) && response.medium.known()) medium = response.medium;
    hold_timer.disarm();
    hold_time_over = false;
    const bool goes_on = state == VolumeState::open;
    set_state(VolumeState::open, storage_is_known_to_be_gone() ? gone_text : "");
    const bool another = unflushed.epoch() != epoch_before || medium != medium_before;
    if (goes_on && geometry.size_bytes != size_before) {
        report_resize(size_before);
    } else if (goes_on && another) {
        handler.on_volume_changed(self);
    }
    resume_held();
    if (std::exchange(asks_again, false)) look_again();
}

// Its held writes would overwrite newer data, and what its user knows of the content is out of
// date.
void RemoteVolume::Inside::supersede() {
    open_error = rtrs::from_errno(ESTALE);
    hold_timer.disarm();
    set_state(VolumeState::superseded,
              "another writer has written to it while this one was away: what was held has failed; "
              "close and open it (a device: unmap and map it) to use what is there now");
    fail_all_held(open_error);
}

void RemoteVolume::Inside::device_forgotten(std::uint32_t id) {
    if (state == VolumeState::superseded) return;
    if (id == device_id) {
        open_at_server = false;
        maybe_open_at_server = asking;
        if (state == VolumeState::open) {
            // A storage that fails each flush makes the server do so each time.
            const bool news = traced_closes.happened(session.environment.clock.now()).has_value();
            set_state(VolumeState::reopening, "the server has closed the device",
                      news ? Traced::yes : Traced::no);
        }
    }
    if (state != VolumeState::open) ask_later();
}

}  // namespace rnbd
