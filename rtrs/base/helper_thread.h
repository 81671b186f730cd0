// A thread for calls that may block, started at the first use.
//
// THREAD: its owner's; work() runs on the helper.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace rtrs {

class HelperThread {
  public:
    // finished: where done functions go when their work has ended; called on the helper thread.
    explicit HelperThread(std::function<void(std::function<void()>)> finished)
        : finished_(std::move(finished)) {}
    // Waits for the work that runs; what has not begun is dropped.
    ~HelperThread();
    HelperThread(const HelperThread&) = delete;
    HelperThread& operator=(const HelperThread&) = delete;

    // False: there is no thread to be had now, as if it had not been called.
    [[nodiscard]] bool run(std::function<void()> work, std::function<void()> done);

  private:
    struct Job {
        std::function<void()> work;
        std::function<void()> done;
    };
    void serve();
    bool start();

    std::function<void(std::function<void()>)> finished_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Job> jobs_;  // guarded by mutex_
    bool ending_ = false;   // guarded by mutex_
    std::thread thread_;
};

}  // namespace rtrs
