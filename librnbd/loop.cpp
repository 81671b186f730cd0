#include "librnbd/loop.h"

#include <exception>
#include <utility>

#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"
#include "rtrs/base/start_thread.h"

namespace rnbd::library {

std::atomic<std::uint32_t> Loop::forks = 0;
constinit thread_local std::uint64_t Loop::thread_number = 0;

std::expected<std::unique_ptr<Loop>, std::error_code> Loop::create(Thread thread) {
    static const int counts_forks = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
    if (counts_forks != 0) return std::unexpected(rtrs::from_errno(counts_forks));
    // No storage here that would want fixed buffers and files, and a ring for each session: a
    // connection has a send and a receive under way, however many requests these carry. So many
    // entries, and what completes of them, are a page each.
    auto reactor =
        rtrs::Reactor::create({.submission_entries = 32, .fixed_buffers = 0, .fixed_files = 0});
    if (!reactor) return std::unexpected(reactor.error());
    return std::unique_ptr<Loop>(new Loop(std::move(*reactor), thread));
}

std::error_code Loop::start() {
    if (!threaded()) {
        owner_ = number_thread();
        return {};
    }
    auto started = rtrs::start_thread([this] { run(); }, "librnbd");
    if (!started) return started.error();
    thread_ = std::move(*started);
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return owner_ != 0; });
    }
    return {};
}

std::uint64_t Loop::number_thread() noexcept {
    static constinit std::atomic<std::uint64_t> last = 0;
    if (thread_number == 0) thread_number = ++last;
    return thread_number;
}

void Loop::run() {
    {
        std::unique_lock lock(mutex_);
        owner_ = number_thread();
        changed_.notify_all();
        changed_.wait(lock, [this] { return gate_ != Gate::shut; });
        if (gate_ == Gate::given_up) return;
    }
    reactor_->run();
    {
        const std::scoped_lock told(mutex_);  // stop() is out of the reactor
    }
    // Only this thread can take back what is in the ring, which holds an RDMA device.
    reactor_.reset();
}

void Loop::set_gate(Gate gate) {
    const std::scoped_lock lock(mutex_);
    gate_ = gate;
    changed_.notify_all();
}

void Loop::go() {
    if (threaded()) set_gate(Gate::open);
}

void Loop::stop() {
    if (!thread_.joinable()) return;
    RTRS_ASSERT(!here());
    if (gate_ == Gate::shut) {
        set_gate(Gate::given_up);
    } else {
        const std::scoped_lock lock(mutex_);
        reactor_->stop();
    }
    thread_.join();
}

void Loop::turn(std::optional<rtrs::Duration> max_wait) {
    RTRS_ASSERT(!threaded() && here() && !in_turn_);
    in_turn_ = true;
    told_ = false;
    reactor_->run_turn_end();
    reactor_->run_once(told_ ? rtrs::Duration::zero() : max_wait);
    in_turn_ = false;
}

void Loop::call(const std::function<void()>& call) {
    if (here()) return call();
    RTRS_ASSERT(threaded());
    bool done = false;
    std::exception_ptr thrown;
    reactor_->post([&] {
        try {
            call();
        } catch (...) {
            thrown = std::current_exception();
        }
        const std::scoped_lock lock(mutex_);
        done = true;
        changed_.notify_all();
    });
    {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return done; });
    }
    if (thrown) std::rethrow_exception(thrown);
}

bool Loop::wait_until(const std::function<bool()>& done, std::optional<Deadline> deadline) {
    RTRS_ASSERT(!in_turn());
    if (threaded()) {
        std::unique_lock lock(mutex_);
        if (deadline) return changed_.wait_until(lock, *deadline, done);
        changed_.wait(lock, done);
        return true;
    }
    while (!done()) {
        std::optional<rtrs::Duration> left;
        if (deadline) {
            left = *deadline - std::chrono::steady_clock::now();
            if (*left <= rtrs::Duration::zero()) return false;
        }
        turn(left);
    }
    return true;
}

}  // namespace rnbd::library
