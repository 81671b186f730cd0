// What the reactor's tests share.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rtrs/reactor.h"
#include "tests/skip.h"

namespace rtrs::testing {

inline std::unique_ptr<Reactor> make_reactor(const Reactor::Options& options = {}) {
    auto reactor = Reactor::create(options);
    if (!reactor) FAIL("no reactor: " << reactor.error().message());
    return std::move(*reactor);
}

// Older kernels keep a registered file for too long: nothing registers one there.
inline bool files_are_registered_here() {
    utsname kernel{};
    int version = 0;
    int release = 0;
    REQUIRE(::uname(&kernel) == 0);
    REQUIRE(std::sscanf(kernel.release, "%d.%d", &version, &release) == 2);
    const bool here = version > 6 || (version == 6 && release >= 4);
    if (!here) rnbd::testing::skip("needs Linux 6.4");
    return here;
}

class Descriptor {
  public:
    explicit Descriptor(int fd = -1) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() { close(); }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    operator int() const { return fd_; }

  private:
    int fd_;
};

// An operation that remembers its results.
struct Recorded : Operation {
    Recorded() : Operation(&done) {}
    static void done(Operation& operation, const Result& result) {
        auto& self = static_cast<Recorded&>(operation);
        // Not REQUIRE: handlers may run beside the thread of the test, and Catch is for one.
        RTRS_ASSERT(operation.in_flight == result.more);
        self.results.push_back(result);
    }
    bool finished() const { return !results.empty() && !results.back().more; }
    int value() const { return results.back().value; }
    std::vector<Result> results;
};

template <typename Condition>
void run_until(Reactor& reactor, Condition condition) {
    while (!condition()) reactor.run_once(std::nullopt);
}

inline int finish(Reactor& reactor, Recorded& operation) {
    run_until(reactor, [&] { return operation.finished(); });
    return operation.value();
}

inline std::pair<Descriptor, Descriptor> unix_pair() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    return {Descriptor(fds[0]), Descriptor(fds[1])};
}

struct LoopbackListener {
    LoopbackListener() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof address;
        REQUIRE(::bind(fd, generic(), bytes) == 0);
        REQUIRE(::listen(fd, 16) == 0);
        REQUIRE(::getsockname(fd, generic(), &bytes) == 0);
    }
    sockaddr* generic() { return reinterpret_cast<sockaddr*>(&address); }
    Descriptor fd;
    sockaddr_in address{};
};

inline Bytes bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string text_of(Bytes bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file without a name, of zeroes.
inline Descriptor temporary_file(std::size_t bytes) {
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/reactor-XXXXXX";
    Descriptor file(::mkostemp(path.data(), O_CLOEXEC));
    REQUIRE(file >= 0);
    ::unlink(path.c_str());
    REQUIRE(::ftruncate(file, static_cast<off_t>(bytes)) == 0);
    return file;
}

}  // namespace rtrs::testing
