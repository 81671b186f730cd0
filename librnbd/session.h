// The object behind an rnbd_session: the loop, the fabrics, the RNBD session, its volumes and
// requests.
//
// LIFE: fresh -> running -> closing -> closed.
// THREAD: as librnbd.h says; members marked "loop" are used by the loop's thread only.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "librnbd/error_text.h"
#include "librnbd/librnbd.h"
#include "librnbd/loop.h"
#include "librnbd/requests.h"
#include "librnbd/session_fabrics.h"
#include "librnbd/settings.h"
#include "librnbd/turn_news.h"
#include "librnbd/volume.h"
#include "rnbd/awaited_paths.h"
#include "rnbd/identity/session_lock.h"
#include "rnbd/remote_volume.h"
#include "rtrs/base/random.h"

namespace rnbd::library {

// An rnbd_event that waits to be reported to the program.
struct PendingEvent {
    int kind;
    int error;
    Volume* volume;
    std::string path;
    std::string text;
    std::uint64_t size_bytes;
};

class Session final : public RemoteSessionHandler, AwaitedPaths::Owner {
  public:
    enum class State : std::uint8_t { fresh, running, closing, closed };

    Session() = default;
    ~Session();  // ASSUMES: fresh, or taken_down()

    // --- The functions of librnbd.h. They return 0, or a negative errno and set the text.
    int set(std::string_view key, std::string_view value);
    int on_event(rnbd_event_fn event, void* context);
    int on_turn(rnbd_turn_fn turn, void* context);
    int add_path(std::string_view path);
    int remove_path(std::string_view path);
    int start();
    int fd();
    int process(int timeout_ms);
    int close(rnbd_done_fn done, void* context);
    int take_down();  // all of rnbd_session_free() except freeing the memory
    int open_volume(std::string_view name, unsigned flags, Volume*& volume);
    int wait_volume(Volume& volume, int timeout_ms);
    int close_volume(Volume& volume, rnbd_done_fn done, void* context);
    int get_info(Volume& volume, rnbd_volume_info& info, std::size_t info_bytes);
    int get_buffer(Buffer*& buffer);
    int put_buffer(Buffer& buffer);
    // Fills a request by fill(request), checks it and starts it.
    template <typename Fill>
    int submit(Volume& volume, Fill fill);

    // --- For volumes.
    Loop& loop() noexcept { return *loop_; }
    RemoteSession& remote() noexcept { return *remote_; }
    Requests& requests() noexcept { return *requests_; }
    void tell(PendingEvent event);
    // Does later, when the present call is over, what is left to do: report events, drop volumes
    // that have closed, end the session.
    void keep_house();
    // A request of a closing volume, or a part of it, has ended.
    void close_goes_on();
    // Starts the requests that other threads have submitted.
    void take_in();

    ErrorText error;

  private:
    void on_session_closed() override;
    void on_session_path_gone(std::string_view label) override;
    // Releases the session's name at the destination, unless a path to it is left.
    void release_name(const std::string& destination);
    void on_session_link_up() override;
    void on_session_link_down(std::error_code reason) override;
    void on_session_given_up(std::error_code reason) override;
    void on_session_path_changed(std::string_view label, rtrs::PathChange change,
                                 std::error_code reason) override;
    void on_session_path_not_connected(std::string_view label, std::error_code reason,
                                       std::string_view text) override;
    bool may_add_awaited() const noexcept override { return state_ == State::running; }
    std::optional<rtrs::RdmaDevices::Error> add_awaited(const AwaitedPath& path) override;
    void on_awaited(const AwaitedPath& path) override;

    // check_thread() checks whether the loop may be used from here; if not, it sets the text.
    // on_loop() checks the same, runs work on the loop's thread and returns its result.
    int check_thread(ErrorText& text);
    int on_loop(ErrorText& text, const std::function<int()>& work);
    int on_loop(const std::function<int()>& work) { return on_loop(error, work); }
    // For calls that come too late once the session was started.
    int check_fresh(const std::string& what);
    int begin();
    bool dial_again(const std::string& label, rtrs::PathPriority priority);
    int cannot_add(const PathSetting& path, std::error_code code, const std::string& why);
    int make_loop();
    int lock_names();
    void note_given_up(std::error_code reason);
    void begin_close();
    void cut_off();
    void house_kept();
    void tell_events();
    void drop_closed_volumes();
    int wait_until_settled(Volume& volume, std::optional<Loop::Deadline> deadline);
    std::string why_not_open(const Volume& volume);

    void queue(Request& request);
    void start_request(Request& request) noexcept;
    void finished(Request& request);
    void give_back();

    Settings settings_;
    rnbd_event_fn event_ = nullptr;
    void* event_context_ = nullptr;
    TurnNews turn_news_;
    std::atomic<State> state_ = State::fresh;  // changed by the loop
    SessionLock names_;
    rtrs::Random random_{0};
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<SessionFabrics> fabrics_;  // loop, as are all members below up to pool_
    std::unique_ptr<RemoteSession> remote_;
    std::optional<AwaitedPaths> awaited_;
    std::unique_ptr<Requests> requests_;
    std::vector<std::unique_ptr<Volume>> volumes_;
    // Volumes that were closed with the session. The program has their handles until it frees the
    // session.
    std::vector<std::unique_ptr<Volume>> ended_;
    std::deque<PendingEvent> events_;
    std::error_code given_up_;  // no path comes back by itself
    rtrs::MemberTask<&Session::house_kept> house_{*this};
    // Finished requests. They are given back at the end of the turn, with the lock taken once.
    rtrs::IntrusiveList<Request> spent_;
    rtrs::MemberTask<&Session::give_back> given_back_{*this};
    std::uint32_t buffers_ = 0;
    std::optional<rtrs::Timer> close_timer_;
    bool remote_closing_ = false;
    bool remote_closed_ = false;
    rnbd_done_fn close_done_ = nullptr;
    void* close_context_ = nullptr;

    RequestPool pool_;                    // guarded by the lock
    rtrs::IntrusiveList<Request> inbox_;  // guarded by the lock: requests of other threads
};

template <typename Fill>
int Session::submit(Volume& volume, Fill fill) {
    if (const char* const why = loop_->refuses_caller()) return volume.error.set(-EPERM, why);
    Request* request = nullptr;
    {
        const auto lock = loop_->lock();
        request = &pool_.take();
        // The request is put back if it is refused, or if there is no memory for the error text.
        const auto back = [this](Request* refused) { pool_.put(*refused); };
        std::unique_ptr<Request, decltype(back)> unused(request, back);
        request->volume = &volume;
        request->buffer = nullptr;
        request->stage = Request::Stage::data;
        request->started = 0;
        request->error.clear();
        request->iov.clear();
        fill(*request);
        if (const int failed = volume.check(*request)) return failed;
        request->whole.begin(request->operation,
                             {.forced = (request->flags & RNBD_FUA) != 0,
                              .no_unmap = (request->flags & RNBD_NO_HOLE) != 0,
                              .fast_only = (request->flags & RNBD_FAST_ZERO) != 0});
        const bool here = loop_->here();
        if (!here) queue(*request);
        static_cast<void>(unused.release());
        if (request->buffer != nullptr) {
            request->buffer->in_flight.store(true, std::memory_order_relaxed);  // by the lock
        }
        if (!here) return 0;
    }
    start_request(*request);
    return 0;
}

}  // namespace rnbd::library
