// What went wrong with a handle, in words.
//
// THREAD: anywhere.
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
    // As set(), and allocates nothing.
    int set_no_memory() noexcept {
        const std::scoped_lock lock(mutex_);
        no_memory_ = true;
        return -ENOMEM;
    }
    // Lives until this thread asks again, for any handle.
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
    bool no_memory_ = false;  // instead of the text
};

}  // namespace rnbd::library
