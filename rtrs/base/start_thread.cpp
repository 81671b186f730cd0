#include "rtrs/base/start_thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace rtrs {

std::expected<std::thread, std::error_code> start_thread(std::function<void()> work,
                                                         const char* name) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    // The thread has them from its maker.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::expected<std::thread, std::error_code> started;
    try {
        started = std::thread(std::move(work));
        if (name != nullptr) pthread_setname_np(started->native_handle(), name);
    } catch (const std::system_error& failure) {
        started = std::unexpected(failure.code());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

}  // namespace rtrs
