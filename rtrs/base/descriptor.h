// A file descriptor that is closed when its owner is destroyed. THREAD: any, one at a time.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace rtrs {

class Descriptor {
  public:
    Descriptor() = default;
    // fd: as open(2) returns it; below 0 means none.
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    // errno is preserved: people are to be told what failed before.
    ~Descriptor() {
        if (fd_ < 0) return;
        const int error = errno;
        ::close(fd_);
        errno = error;
    }

    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    // Closes it now.
    void reset() noexcept { Descriptor(std::move(*this)); }
    // The caller has to close it from now on.
    int release() noexcept { return std::exchange(fd_, -1); }

  private:
    int fd_ = -1;
};

}  // namespace rtrs
