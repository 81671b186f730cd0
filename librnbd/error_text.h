// The text of the newest error of a handle.
//
// THREAD: any.
#pragma once

#include <cerrno>
#include <mutex>
#include <string>

namespace rnbd::library {

class ErrorText {
  public:
    // Keeps the text and hands the error back, so that a failing function can return it.
    int set(int error, std::string text) {
        const std::scoped_lock lock(mutex_);
        text_ = std::move(text);
        no_memory_ = false;
        return error;
    }
    // The same for -ENOMEM; it allocates nothing.
    int set_no_memory() noexcept {
        const std::scoped_lock lock(mutex_);
        no_memory_ = true;
        return -ENOMEM;
    }
    // The text is valid until this thread calls get() again, for any handle.
    const char* get() const {
        thread_local std::string copy;
        const std::scoped_lock lock(mutex_);
        if (no_memory_) return "there is no memory for it";
        copy = text_;
        return copy.c_str();
    }

  private:
    mutable std::mutex mutex_;
    std::string text_;
    bool no_memory_ = false;  // the error is -ENOMEM; text_ is not used
};

}  // namespace rnbd::library
