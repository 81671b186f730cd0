// The life of a RemoteVolume: made, in one state after the other, and closed. How it is opened is
// in remote_volume_open.cpp.

#include <memory>
#include <utility>
#include <vector>

#include "rnbd/remote_session_inside.h"
#include "rnbd/remote_volume_inside.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

using namespace std::chrono_literals;

// How often a volume looks whether what it waits for has ended, where nobody tells it.
constexpr rtrs::Duration look_again_delay = 50ms;

}  // namespace

const char* to_string(VolumeOperation operation) noexcept {
    switch (operation) {
        case VolumeOperation::read:
            return "read";
        case VolumeOperation::write:
            return "write";
        case VolumeOperation::flush:
            return "flush";
        case VolumeOperation::discard:
            return "discard";
        case VolumeOperation::write_zeroes:
            return "write_zeroes";
        case VolumeOperation::extents:
            return "extents";
    }
    return "?";
}

const char* to_string(VolumeState state) noexcept {
    switch (state) {
        case VolumeState::opening:
            return "opening";
        case VolumeState::open:
            return "open";
        case VolumeState::reopening:
            return "reopening";
        case VolumeState::superseded:
            return "superseded";
        case VolumeState::closed:
            return "closed";
    }
    return "?";
}

RemoteVolume::Inside::Inside(RemoteVolume& its_self, RemoteSession::Inside& its_session,
                             RemoteVolumeOptions its_options, RemoteVolumeHandler& its_handler)
    : self(its_self),
      session(its_session),
      options(std::move(its_options)),
      handler(its_handler),
      retry_timer(session.environment.clock, this, rtrs::member_call<&Inside::try_again>),
      hold_timer(session.environment.clock, this,
                 [](void* context) {
                     auto& inside = *static_cast<Inside*>(context);
                     inside.hold_time_over = true;
                     inside.set_state(inside.state, inside.reason);
                     inside.fail_all_held(rtrs::Error::no_path);
                 }),
      failure_timer(session.environment.clock, this, rtrs::member_call<&Inside::report_failures>),
      closed_timer(session.environment.clock, this,
                   [](void* context) {
                       auto& inside = *static_cast<Inside*>(context);
                       inside.handler.on_volume_closed(inside.self);
                   }),
      writer(options.writer != 0 ? options.writer : draw_writer()),
      medium(options.medium),
      knows_medium(options.medium.known()),
      knows_content(options.writer != 0),
      since(session.environment.clock.now()),
      unflushed(options.epoch) {
    if (options.untold_loss) loss_of_former_life();
    session.volumes.push_back(this);
    arm_hold();
    // The server may have it open since what is given up was sent.
    maybe_open_at_server = session.may_still_run_for(options.name);
    // Not from here: the user does not have this yet, and may close it at once.
    if (session.ready) open_soon();
}

RemoteVolume::Inside::~Inside() {
    RTRS_ASSERT(state == VolumeState::closed);
    std::erase(session.volumes, this);
}

std::uint64_t RemoteVolume::Inside::draw_writer() const {
    return options.access == AccessMode::read_only ? 0 : session.environment.random.next() | 1;
}

void RemoteVolume::Inside::arm_hold() {
    hold_timer.disarm();
    const bool waits = state == VolumeState::opening || state == VolumeState::reopening;
    if (closing || hold_time_over || !waits) return;
    if (const auto until = session.session.options().hold_until(since)) hold_timer.arm(*until);
}

void RemoteVolume::Inside::set_state(VolumeState next, std::string why, Traced traced) {
    const bool waits = next == VolumeState::opening || next == VolumeState::reopening;
    if (waits && hold_time_over) why += "; its hold time is over, requests fail";
    const bool changed = next != state || why != reason;
    const bool lost = state == VolumeState::open && next == VolumeState::reopening;
    if (next != state) since = session.environment.clock.now();
    state = next;
    reason = std::move(why);
    if (lost) arm_hold();
    if (!changed) return;
    const bool was_untraced = std::exchange(interruption_untraced, traced == Traced::no);
    const bool ends_untraced = was_untraced && state == VolumeState::open && reason.empty();
    if (traced == Traced::yes && !ends_untraced) trace_state();
    if (next != VolumeState::closed) handler.on_volume_changed(self);
}

void RemoteVolume::Inside::trace_state() {
    const std::string subject = session.session.options().name + "/" + options.name;
    const bool trouble =
        state != VolumeState::closed && (state != VolumeState::open || !reason.empty());
    session.environment.tracer.trace(
        trouble ? rtrs::TraceLevel::warning : rtrs::TraceLevel::info, "rnbd.volume", subject,
        std::string(to_string(state)) + (reason.empty() ? "" : ": " + reason));
}

// --- Closing.

void RemoteVolume::Inside::close(Close how) {
    if (closing) return;
    closing = true;
    how_closed = how;
    retry_timer.disarm();
    hold_timer.disarm();
    fail_all_held(rtrs::Error::closed);
    close_if_idle();
}

void RemoteVolume::Inside::close_if_idle() {
    if (!closing || state == VolumeState::closed) return;
    fail_all_held(rtrs::Error::closed);
    // A CLOSE that was sent is always answered, with an error if the link is lost.
    if (close_sent) return;
    if (in_flight > 0 || !failing.empty() || asking) {
        // When a path has drained, its requests in flight become held, which nobody reports. So
        // look again later.
        if (failing.empty() && !session.ready) {
            failure_timer.arm(session.environment.clock.now() + look_again_delay);
        }
        return;
    }
    if (!open_at_server || !session.ready || how_closed == Close::may_return) return closed();
    close_sent = true;
    send_close([](void* context, std::error_code error, rtrs::Bytes) {
        auto& inside = *static_cast<Inside*>(context);
        if (!unanswered(error)) inside.maybe_open_at_server = false;
        inside.closed();
    });
}

void RemoteVolume::Inside::send_close(rtrs::ClientSession::UserResponded responded) {
    std::byte message[CloseMessage::wire_bytes];
    CloseMessage{.device_id = device_id}.emit(message);
    session.session.submit_user(rtrs::Direction::write, message, 0, responded, this);
}

void RemoteVolume::Inside::closed() {
    if (state == VolumeState::closed) return;
    options.writer = writer;
    options.medium = knows_medium ? medium : MediumId{};
    if (maybe_open_at_server && how_closed == Close::for_good) session.close_later(options);
    set_state(VolumeState::closed, "");
    closed_timer.arm(session.environment.clock.now());
}

// --- The public face.

RemoteVolume::RemoteVolume(RemoteSession& session, RemoteVolumeOptions options,
                           RemoteVolumeHandler& handler)
    : inside_(std::make_unique<Inside>(*this, *session.inside_, std::move(options), handler)),
      session_(session) {}
RemoteVolume::~RemoteVolume() = default;

void RemoteVolume::close(Close how) { inside_->close(how); }
VolumeState RemoteVolume::state() const noexcept { return inside_->state; }
const std::string& RemoteVolume::reason() const noexcept { return inside_->reason; }
bool RemoteVolume::hold_time_over() const noexcept { return inside_->hold_time_over; }
rtrs::Instant RemoteVolume::since() const noexcept { return inside_->since; }
std::optional<rtrs::Instant> RemoteVolume::next_attempt() const noexcept {
    if (inside_->state == VolumeState::open || !inside_->retry_timer.armed()) return std::nullopt;
    return inside_->retry_timer.deadline();
}
void RemoteVolume::limit_blocks(std::uint32_t bytes) { inside_->limit_blocks(bytes); }
std::error_code RemoteVolume::open_again() { return inside_->open_again(); }
std::error_code RemoteVolume::set_size(std::uint64_t size_bytes) {
    return inside_->set_size(size_bytes);
}
std::error_code RemoteVolume::open_error() const noexcept { return inside_->open_error; }
bool RemoteVolume::waits_for_given_up() const noexcept {
    return inside_->session.may_still_run_for(inside_->options.name);
}
const VolumeGeometry& RemoteVolume::geometry() const noexcept { return inside_->geometry; }
const RemoteVolumeOptions& RemoteVolume::options() const noexcept { return inside_->options; }
const VolumeLosses& RemoteVolume::losses() const noexcept { return inside_->unflushed.losses(); }
std::uint64_t RemoteVolume::unflushed_writes() const noexcept { return inside_->unflushed.count(); }
void RemoteVolume::lost_in_part() { inside_->lost_in_part(); }
RemoteSession& RemoteVolume::session() noexcept { return session_; }
std::uint64_t RemoteVolume::writer() const noexcept { return inside_->writer; }
const MediumId& RemoteVolume::medium() const noexcept { return inside_->medium; }
std::uint64_t RemoteVolume::epoch() const noexcept { return inside_->unflushed.epoch(); }
std::vector<VolumeRequestStatus> RemoteVolume::requests() const { return inside_->requests(); }

void RemoteVolume::submit(rtrs::Permit permit, const VolumeIo& io) {
    inside_->submit(std::move(permit), io, inside_->unflushed.acknowledged());
}

}  // namespace rnbd
