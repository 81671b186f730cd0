// A thread for calls that may block, started at the first use.
//
// THREAD: its owner's; work() runs on the helper.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace rtrs {

class HelperThread {
  public:
    // finished: receives each done function when its work has ended; called on the helper thread.
    explicit HelperThread(std::function<void(std::function<void()>)> finished) {
        shared_->finished = std::move(finished);
    }
    // Waits for the work that is running; work that has not begun is dropped.
    ~HelperThread();
    HelperThread(const HelperThread&) = delete;
    HelperThread& operator=(const HelperThread&) = delete;

    // False: no thread is available now, and the call has no effect.
    [[nodiscard]] bool run(std::function<void()> work, std::function<void()> done);
    // For work that does not end: nobody waits for it any more, or is told when it ends. The work
    // must own what it uses. Nothing is run after this.
    void abandon();

  private:
    struct Job {
        std::function<void()> work;
        std::function<void()> done;
    };
    // Shared with the thread, which may outlive this object.
    struct Shared {
        std::function<void(std::function<void()>)> finished;
        std::mutex mutex;
        std::condition_variable wake;
        std::deque<Job> jobs;    // guarded by mutex
        bool ending = false;     // guarded by mutex
        bool abandoned = false;  // guarded by mutex
    };
    static void serve(Shared& shared);
    void end(bool abandoned);
    bool start();

    std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
    std::thread thread_;
};

}  // namespace rtrs
