#include "daemon/sockets/unix_listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

using namespace rnbd;

namespace {

struct Folder {
    Folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path = "/tmp/rnbd-listener-XXXXXX";
    std::string socket() const { return path + "/d.ctl"; }
};

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path.c_str());
    return address;
}

// As a killed daemon leaves it.
void leave_a_socket(const std::string& path) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = address_of(path);
    REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    ::close(fd);
}

bool is_heard(const std::string& path) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = address_of(path);
    const int result = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::close(fd);
    return result == 0;
}

std::size_t files_in(const std::string& folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                                  std::filesystem::directory_iterator()));
}

}  // namespace

TEST_CASE("unix listener: of those that begin together one listens, and is heard") {
    constexpr int rounds = 2000;
    constexpr std::size_t together = 4;
    Folder folder;
    std::array<rtrs::Descriptor, together> listeners{};
    std::array<std::error_code, together> errors{};
    std::barrier at_once(together + 1);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < together; ++i) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < rounds; ++round) {
                at_once.arrive_and_wait();
                auto listener = listen_on_unix(folder.socket(), 0600);
                errors[i] = listener ? std::error_code{} : listener.error();
                if (listener) listeners[i] = std::move(*listener);
                at_once.arrive_and_wait();
            }
        });
    }
    int several = 0, unheard = 0, odd = 0;
    for (int round = 0; round < rounds; ++round) {
        leave_a_socket(folder.socket());
        at_once.arrive_and_wait();
        at_once.arrive_and_wait();
        const auto those =
            std::ranges::count_if(listeners, [](const auto& one) { return bool(one); });
        if (those != 1) ++several;
        if (!is_heard(folder.socket())) ++unheard;
        for (const auto& error : errors) odd += error && error != std::errc::address_in_use;
        for (auto& listener : listeners) listener.reset();
        ::unlink(folder.socket().c_str());
    }
    for (auto& thread : threads) thread.join();
    CHECK(several == 0);
    CHECK(unheard == 0);
    CHECK(odd == 0);
    CHECK(files_in(folder.path) == 0);
}

TEST_CASE(
    "unix listener: what another process is at is left alone, what a killed one left is not") {
    Folder folder;
    const std::string lock = folder.socket() + ".lock";
    leave_a_socket(folder.socket());
    struct stat before{}, after{};
    REQUIRE(::stat(folder.socket().c_str(), &before) == 0);
    // The lock of another open file is as that of another process.
    const int other = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(::flock(other, LOCK_EX) == 0);
    const auto refused = listen_on_unix(folder.socket(), 0600);
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == std::errc::address_in_use);
    REQUIRE(::stat(folder.socket().c_str(), &after) == 0);
    CHECK(before.st_ino == after.st_ino);
    // Killed: the file stays, and the lock ends.
    ::close(other);
    const auto listener = listen_on_unix(folder.socket(), 0600);
    REQUIRE(listener);
    CHECK(is_heard(folder.socket()));
    CHECK(files_in(folder.path) == 1);
}

TEST_CASE("unix listener: the folder of a daemon's own socket is made, or it is said why not") {
    Folder folder;
    const std::string in_new_folder = folder.path + "/run/d.ctl";
    const auto listener = listen_on_unix_in_folder(in_new_folder, 0600);
    REQUIRE(listener);
    CHECK(is_heard(in_new_folder));

    const auto two_missing = listen_on_unix_in_folder(folder.path + "/a/b/d.ctl", 0600);
    REQUIRE_FALSE(two_missing);
    CHECK(two_missing.error() == std::errc::no_such_file_or_directory);

    // Nobody, root neither, makes a folder there.
    const auto forbidden = listen_on_unix_in_folder("/sys/rnbd/d.ctl", 0600);
    REQUIRE_FALSE(forbidden);
    const bool says_why = forbidden.error() == std::errc::operation_not_permitted ||
                          forbidden.error() == std::errc::permission_denied ||
                          forbidden.error() == std::errc::read_only_file_system;
    CHECK(says_why);
}
