#include "daemon/lifecycle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/descriptor.h"
#include "rtrs/base/error.h"

namespace rnbd {

namespace {

sigset_t stop_signals() noexcept {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGTERM);
    ::sigaddset(&set, SIGINT);
    return set;
}

sigset_t all_signals() noexcept {
    sigset_t set = stop_signals();
    ::sigaddset(&set, SIGHUP);
    return set;
}

// To the hard limit, and with the right to it beyond, up to `wanted`.
void raise_limit(__rlimit_resource resource, rlim_t wanted) noexcept {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0) return;
    const rlimit higher{std::max(limit.rlim_cur, wanted), std::max(limit.rlim_max, wanted)};
    if (::setrlimit(resource, &higher) == 0) return;
    limit.rlim_cur = limit.rlim_max;
    static_cast<void>(::setrlimit(resource, &limit));
}

// Standard streams that the starter had closed: what is opened next would have their numbers, and
// what is printed there would go into a ring, a socket or an exported file.
void open_standard_streams() noexcept {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        // The lowest number that is free.
        if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
    }
}

void notify(std::string_view state, std::string_view status) {
    // A newline would begin another assignment.
    std::string line(status.substr(0, status.find('\n')));
    ::sd_notify(0, fmt::format("{}STATUS={}", state, line).c_str());
}

}  // namespace

void keep_reload_for_later() noexcept {
    sigset_t reload;
    ::sigemptyset(&reload);
    ::sigaddset(&reload, SIGHUP);
    ::pthread_sigmask(SIG_BLOCK, &reload, nullptr);
}

void prepare_process() {
    open_standard_streams();
    const sigset_t signals = all_signals();
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    // SIGXFSZ: a file that may not grow is an error of the write. The last two have other daemons
    // show their state or open their log anew: who sends them out of habit does not mean to end
    // this one.
    for (const int signal : {SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2}) std::signal(signal, SIG_IGN);
    constexpr rlim_t files_wanted = 1u << 20;
    raise_limit(RLIMIT_NOFILE, files_wanted);
    raise_limit(RLIMIT_MEMLOCK, RLIM_INFINITY);
}

std::string why_no_ring(std::error_code error) {
    rlimit limit{};
    if (error == std::errc::not_enough_memory && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
        return fmt::format("{}; the limit of locked memory (ulimit -l, LimitMEMLOCK=) is {} KiB",
                           error.message(), limit.rlim_cur / 1024);
    }
    if (error == std::errc::operation_not_permitted) {
        return error.message() +
               "; a seccomp filter, as containers have, or the sysctl kernel.io_uring_disabled "
               "forbids it";
    }
    if (error == std::errc::function_not_supported) {
        return error.message() + "; this kernel has none, or a seccomp filter hides it";
    }
    return error.message();
}

void notify_ready(std::string_view status) { notify("READY=1\n", status); }
void notify_status(std::string_view status) { notify("", status); }
void notify_reloading(std::string_view status) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    const auto microseconds = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
                              static_cast<std::uint64_t>(now.tv_nsec) / 1000;
    notify(fmt::format("RELOADING=1\nMONOTONIC_USEC={}\n", microseconds), status);
}
void notify_stopping(std::string_view status) { notify("STOPPING=1\n", status); }

struct Signals::Inside {
    Inside(rtrs::Reactor& loop, std::function<void(int)> on_stop, std::function<void()> on_reload,
           rtrs::Descriptor signals)
        : reactor(loop),
          stop(std::move(on_stop)),
          reload(std::move(on_reload)),
          signal_fd(std::move(signals)) {}
    ~Inside() { RTRS_ASSERT(!waiting.in_flight); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

    void on_ready() {
        if (closed) return reactor.post(std::exchange(closed, nullptr));
        signalfd_siginfo info{};
        if (::read(signal_fd.get(), &info, sizeof info) != sizeof info)
            return reactor.poll_readable(waiting, signal_fd.get());
        if (info.ssi_signo == SIGHUP) {
            reactor.poll_readable(waiting, signal_fd.get());
            return reload();
        }
        came = true;
        // An ignored SIGINT (a background job of a shell) would not end us either.
        std::signal(SIGTERM, SIG_DFL);
        std::signal(SIGINT, SIG_DFL);
        const sigset_t signals = stop_signals();
        ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
        // The callee may destroy this object.
        const auto call = std::move(stop);
        call(static_cast<int>(info.ssi_signo));
    }

    rtrs::Reactor& reactor;
    std::function<void(int)> stop;
    std::function<void()> reload;
    std::function<void()> closed;
    rtrs::Descriptor signal_fd;
    bool came = false;
    rtrs::MemberOperation<&Inside::on_ready> waiting{*this};
};

Signals::Signals(std::unique_ptr<Inside> inside) noexcept : inside_(std::move(inside)) {}
Signals::~Signals() = default;

std::expected<std::unique_ptr<Signals>, std::error_code> Signals::create(
    rtrs::Reactor& reactor, std::function<void(int)> stop, std::function<void()> reload) {
    const sigset_t signals = all_signals();
    rtrs::Descriptor signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signal_fd) return std::unexpected(rtrs::from_errno(errno));
    auto inside =
        std::make_unique<Inside>(reactor, std::move(stop), std::move(reload), std::move(signal_fd));
    reactor.poll_readable(inside->waiting, inside->signal_fd.get());
    return std::unique_ptr<Signals>(new Signals(std::move(inside)));
}

void Signals::close(std::function<void()> closed) {
    if (inside_->came) return inside_->reactor.post(std::move(closed));
    inside_->closed = std::move(closed);
    inside_->reactor.cancel(inside_->waiting);
}

}  // namespace rnbd
