#include "librnbd/session.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <expected>
#include <new>
#include <thread>
#include <utility>

#include "rnbd/identity/session_identity.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"

namespace rnbd::library {
namespace {

// The kernel takes back what a ring had locked some moments after its end: who comes after it under
// the same limit waits for that.
std::expected<std::unique_ptr<Loop>, std::error_code> made_patiently(Thread thread) {
    constexpr auto again_after = std::chrono::milliseconds(5);
    constexpr int attempts = 20;
    for (int left = attempts;; --left) {
        auto loop = Loop::create(thread);
        if (loop || loop.error() != std::errc::not_enough_memory || left == 0) return loop;
        std::this_thread::sleep_for(again_after);
    }
}

}  // namespace

Session::~Session() { RTRS_ASSERT(loop_ == nullptr); }

// --- Before the start.

int Session::check_fresh(const std::string& what) {
    if (state_ == State::fresh) return 0;
    if (const int failed = check_thread(error)) return failed;
    return error.set(-EBUSY, what + ": the session was started already");
}

int Session::set(std::string_view key, std::string_view value) {
    if (const int failed = check_fresh(std::string(key))) return failed;
    const auto applied = settings_.set(key, value);
    return applied ? 0 : error.set(-EINVAL, applied.error());
}

int Session::on_event(rnbd_event_fn event, void* context) {
    if (const int failed = check_fresh("on_event")) return failed;
    event_ = event;
    event_context_ = context;
    return 0;
}

int Session::on_turn(rnbd_turn_fn turn, void* context) {
    if (const int failed = check_fresh("on_turn")) return failed;
    turn_news_.set(turn, context);
    return 0;
}

int Session::start() {
    if (const int failed = check_fresh("start")) return failed;
    if (const auto fit = settings_.check(); !fit) return error.set(-EINVAL, fit.error());
    int failed = 0;
    try {
        failed = lock_names();
        if (failed == 0) failed = make_loop();
        if (failed == 0) failed = begin();
    } catch (const std::bad_alloc&) {
        failed = error.set_no_memory();
    }
    if (failed == 0) return 0;
    if (loop_) loop_->stop();
    turn_news_.end();
    requests_.reset();
    awaited_.reset();
    remote_.reset();
    fabrics_.reset();
    loop_.reset();
    names_.release_all();
    return failed;
}

int Session::make_loop() {
    auto loop = made_patiently(settings_.thread);
    if (!loop) {
        const int failed = -rtrs::to_errno(loop.error());
        std::string why = "io_uring: " + loop.error().message();
        if (failed == -ENOMEM) why += "; the limit of locked memory may be too low (ulimit -l)";
        return error.set(failed, std::move(why));
    }
    loop_ = std::move(*loop);
    loop_->reactor().set_prompt_sends(settings_.prompt_sends);
    turn_news_.begin(loop_->reactor(),
                     loop_->threaded() ? TurnNews::LoopOf::session : TurnNews::LoopOf::program);
    return 0;
}

int Session::begin() {
    // Not before: of a session that was made and then forked, each process may start its own.
    random_ = rtrs::Random::from_entropy();
    fabrics_ = std::make_unique<SessionFabrics>(loop_->reactor(), settings_);
    rtrs::ClientSessionOptions options = settings_.session;
    std::vector<std::pair<const PathSetting*, rtrs::RdmaDevices::Error>> awaited;
    for (const PathSetting& path : settings_.paths) {
        auto address = fabrics_->address_of(path);
        if (address) {
            options.paths.push_back(std::move(*address));
        } else if (AwaitedPaths::may_come(address.error().code)) {
            awaited.emplace_back(&path, std::move(address.error()));
        } else {
            return cannot_add(path, address.error().code, address.error().text);
        }
    }
    if (options.paths.empty()) {
        const auto& [path, why] = awaited.front();
        return cannot_add(*path, why.code, why.text);
    }
    options.identity = machine_identity();
    options.life = session_life();
    remote_ = std::make_unique<RemoteSession>(
        rtrs::SessionEnvironment{loop_->reactor(), random_, fabrics_->tracer()}, std::move(options),
        *this);
    requests_ = std::make_unique<Requests>(
        loop_->reactor(), remote_->rtrs(), settings_.looks_for(),
        [](void* self, Request& request) { static_cast<Session*>(self)->finished(request); }, this);
    // First of all: what was opened has to be closed, which takes the loop's thread.
    if (const auto failed = loop_->start()) {
        return error.set(-rtrs::to_errno(failed), "a thread: " + failed.message());
    }
    awaited_.emplace(loop_->reactor(), static_cast<AwaitedPaths::Owner&>(*this));
    // What has begun cannot be taken back: without memory the process ends.
    const std::error_code failed = [&]() noexcept {
        const std::error_code not_opened = remote_->open();
        if (not_opened) return not_opened;
        for (auto& [path, why] : awaited) {
            awaited_->add(path->label(), path->priority, std::move(why));
        }
        return not_opened;
    }();
    if (failed) return error.set(-rtrs::to_errno(failed), "the session: " + failed.message());
    // Before the loop runs, whose callbacks may ask for anything.
    state_ = State::running;
    loop_->go();
    return 0;
}

// --- Who may do what.

int Session::check_thread(ErrorText& text) {
    if (state_ == State::fresh) return text.set(-ENOTCONN, "the session was not started");
    if (const char* const why = loop_->refuses_caller()) return text.set(-EPERM, why);
    return 0;
}

int Session::on_loop(ErrorText& text, const std::function<int()>& work) {
    if (const int failed = check_thread(text)) return failed;
    int result = 0;
    loop_->call([&] { result = work(); });
    return result;
}

// --- The loop.

int Session::fd() {
    if (const int failed = check_thread(error)) return failed;
    if (loop_->threaded()) return error.set(-EINVAL, "the session has a thread of its own");
    return loop_->reactor().fd();
}

int Session::process(int timeout_ms) {
    if (const int failed = check_thread(error)) return failed;
    if (loop_->threaded()) return error.set(-EINVAL, "the session has a thread of its own");
    if (loop_->in_turn()) return error.set(-EDEADLK, "called from inside a callback");
    if (state_ == State::closed) return error.set(-ESHUTDOWN, "the session has closed");
    std::optional<rtrs::Duration> wait;
    if (timeout_ms >= 0) wait = std::chrono::milliseconds(timeout_ms);
    loop_->turn(wait);
    return 0;
}

// --- Events.

void Session::tell(PendingEvent event) {
    loop_->told();
    if (event_ == nullptr) return;
    events_.push_back(std::move(event));
    keep_house();
}

// Who waits for a volume may wait for ever.
void Session::on_session_given_up(std::error_code reason) { note_given_up(reason); }

void Session::note_given_up(std::error_code reason) {
    given_up_ = reason;
    for (const auto& volume : volumes_) volume->note_given_up(reason);
    loop_->changed();
}

void Session::on_session_link_up() {
    note_given_up({});
    requests_->set_depth(remote_->rtrs().queue_depth());
    tell({.kind = RNBD_EVENT_LINK_UP,
          .error = 0,
          .volume = nullptr,
          .path = {},
          .text = {},
          .size_bytes = 0});
}

void Session::on_session_link_down(std::error_code reason) {
    tell({.kind = RNBD_EVENT_LINK_DOWN,
          .error = -rtrs::to_errno(reason),
          .volume = nullptr,
          .path = {},
          .text = reason.message(),
          .size_bytes = 0});
}

void Session::on_session_path_changed(std::string_view label, rtrs::PathChange change,
                                      std::error_code reason) {
    const bool up = change == rtrs::PathChange::up;
    tell({.kind = up ? RNBD_EVENT_PATH_UP : RNBD_EVENT_PATH_DOWN,
          .error = -rtrs::to_errno(reason),
          .volume = nullptr,
          .path = std::string(label),
          .text = up ? "" : reason.message(),
          .size_bytes = 0});
}

void Session::on_session_path_not_connected(std::string_view label, std::error_code reason,
                                            std::string_view text) {
    tell({.kind = RNBD_EVENT_PATH_NOT_UP,
          .error = -rtrs::to_errno(reason),
          .volume = nullptr,
          .path = std::string(label),
          .text = std::string(text),
          .size_bytes = 0});
}

void Session::on_awaited(const AwaitedPath& path) {
    on_session_path_not_connected(path.label, path.reason.code, path.reason.text);
}

void Session::keep_house() { loop_->reactor().at_turn_end(house_); }

void Session::house_kept() {
    loop_->told();
    tell_events();
    // Who hears that a volume, or the session, has closed hears nothing of its requests any more.
    turn_news_.tell_now();
    drop_closed_volumes();
    if (state_ != State::closing) return;
    if (volumes_.empty() && !remote_closing_) {
        remote_closing_ = true;
        remote_->close();
    }
    if (!remote_closed_) return;
    if (close_timer_) close_timer_->disarm();
    if (close_done_ != nullptr) close_done_(close_context_, 0);
    {
        const auto lock = loop_->lock();
        state_ = State::closed;
    }
    loop_->changed();
}

void Session::tell_events() {
    while (!events_.empty()) {
        const PendingEvent event = std::move(events_.front());
        events_.pop_front();
        // Who was told before may have closed it.
        if (event.volume != nullptr && event.volume->closing()) continue;
        const rnbd_event told{.kind = event.kind,
                              .error = event.error,
                              .volume = reinterpret_cast<rnbd_volume*>(event.volume),
                              .path = event.path.empty() ? nullptr : event.path.c_str(),
                              .text = event.text.empty() ? nullptr : event.text.c_str(),
                              .size_bytes = event.size_bytes};
        event_(event_context_, &told);
    }
}

// One after the other: who is told may open and close others.
void Session::drop_closed_volumes() {
    for (;;) {
        const auto found = std::ranges::find_if(
            volumes_, [](const std::unique_ptr<Volume>& volume) { return volume->closed(); });
        if (found == volumes_.end()) return;
        std::unique_ptr<Volume> gone = std::move(*found);
        volumes_.erase(found);
        requests_->left(gone->share);
        std::erase_if(events_,
                      [&](const PendingEvent& event) { return event.volume == gone.get(); });
        if (gone->closed_by_program()) {
            gone->report_closed();
        } else {
            ended_.push_back(std::move(gone));
        }
    }
}

// --- The end.

int Session::close(rnbd_done_fn done, void* context) {
    return on_loop([=, this]() noexcept {
        if (state_ != State::running) return error.set(-EALREADY, "the session is closing already");
        close_done_ = done;
        close_context_ = context;
        begin_close();
        return 0;
    });
}

void Session::begin_close() {
    state_ = State::closing;
    for (const auto& volume : volumes_) {
        if (!volume->closing()) volume->end();
    }
    if (settings_.close_time) {
        close_timer_.emplace(loop_->reactor(), this, rtrs::member_call<&Session::cut_off>);
        close_timer_->arm(loop_->reactor().now() + *settings_.close_time);
    }
    keep_house();
}

void Session::close_goes_on() {
    const bool waits = close_timer_ && close_timer_->armed();
    if (waits) close_timer_->arm(loop_->reactor().now() + *settings_.close_time);
    keep_house();
}

// What a server that lives does not answer would keep the program for ever.
void Session::cut_off() {
    using PathOperation = rtrs::ClientSession::PathOperation;
    for (const rtrs::PathStatus& path : remote_->rtrs().status().paths) {
        // Of one that is being dialled or closed nothing is to be cut off: that is no error.
        static_cast<void>(remote_->rtrs().operate_path(path.label, PathOperation::disconnect));
    }
}

void Session::on_session_closed() {
    remote_closed_ = true;
    keep_house();
}

int Session::take_down() {
    if (state_ == State::fresh) return 0;
    if (const int failed = check_thread(error)) return failed;
    if (loop_->in_turn()) return error.set(-EDEADLK, "called from inside a callback");
    const int refused = on_loop([this]() noexcept {
        if (buffers_ > 0) {
            return error.set(-EBUSY, std::to_string(buffers_) + " buffers were not put back");
        }
        if (state_ == State::running) begin_close();
        return 0;
    });
    if (refused != 0) return refused;
    loop_->wait_until([this] { return state_ == State::closed; }, std::nullopt);
    loop_->call([this] {
        turn_news_.end();
        rtrs::Reactor::cancel_turn_end(given_back_);
        give_back();
        rtrs::Reactor::cancel_turn_end(house_);  // of who waited for a volume that was closed
        ended_.clear();
        close_timer_.reset();
        requests_.reset();
        awaited_.reset();
        remote_.reset();
        fabrics_.reset();
    });
    loop_->stop();
    loop_.reset();
    return 0;
}

}  // namespace rnbd::library
