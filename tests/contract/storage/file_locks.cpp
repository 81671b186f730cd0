// One writer or many readers of a file: locks, and who holds them.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "rnbd-server/storage/file_medium.h"
#include "rnbd-server/storage/lock_holder.h"
#include "rtrs/base/process_words.h"
#include "tests/contract/storage/files.h"
#include "tests/contract/storage/support.h"
#include "tests/skip.h"

using namespace rnbd;
using namespace rnbd::testing;

TEST_CASE("file storage: one writer or many readers, in this process and in others") {
    TemporaryFolder folder;
    const StorageOptions options = file_options(folder.file("image"));
    Bench first;
    Bench second;
    REQUIRE(!first.open(options));
    REQUIRE(second.open(options) == std::errc::operation_would_block);
    REQUIRE(second.open(read_only(options)) == std::errc::operation_would_block);
    auto try_lock = [&](int kind) {
        return in_child([&] {
            const int fd = ::open(options.path.c_str(), O_RDWR | O_CLOEXEC);
            return ::flock(fd, kind | LOCK_NB) == 0 ? 0 : 1;
        });
    };
    REQUIRE(try_lock(LOCK_SH) == 1);
    first.close();
    REQUIRE(try_lock(LOCK_EX) == 0);

    REQUIRE(!first.open(read_only(options)));
    REQUIRE(!second.open(read_only(options)));
    REQUIRE(try_lock(LOCK_SH) == 0);
    REQUIRE(try_lock(LOCK_EX) == 1);
    second.close();
    REQUIRE(second.open(options) == std::errc::operation_would_block);
    first.close();
    REQUIRE(!second.open(options));
}

// A number that was given again looks the same: it is of somebody who has not the file.
TEST_CASE("files: who has one locked is named as long as it has it open") {
    const TemporaryFolder folder;
    const std::string path = folder.file("locked");
    std::ofstream(path).close();
    const int ours = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(ours >= 0);
    CHECK(lock_holder(ours).empty());
    int to_child[2], to_us[2];
    REQUIRE(::pipe(to_child) == 0);
    REQUIRE(::pipe(to_us) == 0);
    const auto tell = [](const int(&line)[2]) { return ::write(line[1], "x", 1) == 1; };
    const auto hear = [](const int(&line)[2]) {
        char word;
        return ::read(line[0], &word, 1) == 1;
    };
    const pid_t child = ::fork();
    if (child == 0) {
        const int fd = ::open(path.c_str(), O_RDWR);
        const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0 && tell(to_us) && hear(to_child);
        const pid_t heir = locked ? ::fork() : -1;
        if (heir == 0) ::_exit(hear(to_child) ? 0 : 1);
        ::close(fd);
        int status = 0;
        ::_exit(heir > 0 && tell(to_us) && ::waitpid(heir, &status, 0) == heir ? status : 1);
    }
    REQUIRE(hear(to_us));
    // Not every kernel and file system tells it.
    const std::string name = lock_holder(ours);
    if (name.empty()) skip_part("/proc/locks does not say who has a file locked");
    CHECK((name.empty() || name == rtrs::process_words(child)));
    REQUIRE(tell(to_child));
    REQUIRE(hear(to_us));
    CHECK(::flock(ours, LOCK_EX | LOCK_NB) != 0);
    CHECK(lock_holder(ours).empty());
    REQUIRE(tell(to_child));
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    REQUIRE(::flock(ours, LOCK_EX | LOCK_NB) == 0);
    const std::string self = lock_holder(ours);
    CHECK((self.empty() || self == "another export of this server, through a link"));
    for (const int fd : {ours, to_child[0], to_child[1], to_us[0], to_us[1]}) ::close(fd);
}

// The files of a process are told in the order of their numbers.
TEST_CASE("files: who has many files open before the locked one is named with a maybe") {
    const TemporaryFolder folder;
    const std::string path = folder.file("locked");
    const int ours = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int theirs = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE((ours >= 0 && theirs >= 0));
    REQUIRE(::flock(theirs, LOCK_EX | LOCK_NB) == 0);
    const std::string known = "another export of this server, through a link";
    if (lock_holder(ours) != known) {
        ::close(ours);
        ::close(theirs);
        return skip("/proc/locks does not say who has a file locked");
    }
    constexpr int many = 4200;
    rlimit old{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &old) == 0);
    rlimit wanted{.rlim_cur = many + 100, .rlim_max = old.rlim_max};
    if (old.rlim_cur < wanted.rlim_cur) REQUIRE(::setrlimit(RLIMIT_NOFILE, &wanted) == 0);
    std::vector<int> others;
    while (others.empty() || others.back() < many) others.push_back(::dup(ours));
    const int last = ::fcntl(theirs, F_DUPFD_CLOEXEC, many + 1);
    CHECK(last > many);
    ::close(theirs);
    CHECK(lock_holder(ours) == "another program, maybe " + known);
    for (const int fd : others) ::close(fd);
    CHECK(lock_holder(ours) == known);
    ::close(last);
    ::close(ours);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &old) == 0);
}

TEST_CASE("file storage: the lock is free as soon as the storage is gone, whatever it did last") {
    TemporaryFolder folder;
    const StorageOptions options = file_options(folder.file("image"));
    Pages pages(65536);
    for (int i = 0; i < 50; ++i) {
        Bench bench;
        REQUIRE(!bench.open(options));
        REQUIRE(bench.write(65536 * (i % 16), pages.bytes(), Flag::fua) == 0);
        REQUIRE(bench.discard(0, 65536) == 0);
    }
}
