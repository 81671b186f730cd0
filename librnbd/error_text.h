// What went wrong with a handle, in words.
//
// THREAD: anywhere.
#pragma once

#include <mutex>
#include <string>

namespace rnbd::library {

class ErrorText {
  public:
    // Keeps the text and hands the error back, so that a failing function can return it.
    int set(int error, std::string text) {
        const std::scoped_lock lock(mutex_);
        text_ = std::move(text);
        return error;
    }
    // Lives until this thread asks again, for any handle.
    const char* get() const {
        thread_local std::string copy;
        const std::scoped_lock lock(mutex_);
        copy = text_;
        return copy.c_str();
    }

  private:
    mutable std::mutex mutex_;
    std::string text_;
};

}  // namespace rnbd::library
