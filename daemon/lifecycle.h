// The beginning and the end of a daemon: signals, limits, and notifications to systemd.
//
//   int main() {
//       prepare_process();                                     // before any thread
//       auto reactor = rtrs::Reactor::create();
//       auto signals = Signals::create(**reactor, [&](int) { begin to stop }, [&] { reload });
//       notify_ready("serving 3 exports");
//       (*reactor)->run();
//   }
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "rtrs/reactor.h"

namespace rnbd {

// Blocks SIGHUP for the time before prepare_process(), when it would end the process.
void keep_reload_for_later() noexcept;

// Blocks SIGTERM, SIGINT and SIGHUP (Signals receives them), ignores SIGPIPE, SIGUSR1 and SIGUSR2,
// raises the limits of open files and of locked memory as far as this user may, and opens standard
// streams that were closed.
// ASSUMES: no thread was started yet.
void prepare_process();

// Says why there can be no io_uring, and what this process is not allowed to do, in words for an
// administrator. error: that of setting up the ring.
std::string why_no_ring(std::error_code error);

// sd_notify(3); nothing happens when there is no service manager. status: one line for
// `systemctl status`.
void notify_ready(std::string_view status);
void notify_status(std::string_view status);
// The daemon is reloading until it calls notify_ready().
void notify_reloading(std::string_view status);
void notify_stopping(std::string_view status);

// Delivers signals as events of the reactor. SIGTERM or SIGINT is delivered once; from then on both
// have their default action again, so that a second one ends the process at once, even if the
// reactor is stuck. Until then SIGHUP is delivered as often as it comes.
//
// THREAD: the reactor's (rtrs/reactor.h). LIFE: create() -> close() -> closed() -> destroyed; or
// destroyed after the signal came.
class Signals {
  public:
    // stop: gets the number of the signal.
    // ERRORS: EMFILE, ENFILE, ENOMEM.
    static std::expected<std::unique_ptr<Signals>, std::error_code> create(
        rtrs::Reactor& reactor, std::function<void(int signal)> stop, std::function<void()> reload);
    ~Signals();  // ASSUMES: a signal to stop came, or closed() was delivered
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;

    // For an end without a signal. closed() comes in a later turn.
    void close(std::function<void()> closed);

  private:
    struct Inside;
    explicit Signals(std::unique_ptr<Inside> inside) noexcept;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rnbd
