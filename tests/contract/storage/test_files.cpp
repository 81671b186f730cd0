// What only files can do: be absent, locked, shrunk, replaced, or the wrong thing.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "rnbd-server/storage/file_medium.h"
#include "rnbd-server/storage/file_opening.h"
#include "rnbd-server/storage/lock_holder.h"
#include "rtrs/base/process_words.h"
#include "tests/contract/storage/support.h"
#include "tests/skip.h"

using namespace rnbd;
using namespace rnbd::testing;

namespace {

constexpr std::uint64_t size = 1u << 20;

StorageOptions file_options(const std::string& path) {
    return {.path = path, .size_bytes = size, .logical_block_bytes = 4096};
}

StorageOptions read_only(StorageOptions options) {
    options.use = StorageOptions::Use::read_only;
    return options;
}

// Runs body in another process, which reports by its exit status.
template <typename Body>
int in_child(Body body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(body());
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const std::error_condition gone = std::make_error_condition(std::errc::no_such_file_or_directory);

// What a name leads to may take a call or two to be known.
void look_until(Bench& bench, std::error_condition expected) {
    while (bench.storage->check().default_error_condition() != expected) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

TEST_CASE("file storage: what is not wanted any more is not created") {
    TemporaryFolder folder;
    std::stop_source not_wanted;
    not_wanted.request_stop();
    const auto absent = FileMedium::open(file_options(folder.file("new")), not_wanted.get_token());
    REQUIRE(!absent);
    REQUIRE(absent.error().code == std::errc::operation_canceled);
    REQUIRE(::access(folder.file("new").c_str(), F_OK) != 0);
    // One that is there, and empty, is not given a size.
    std::ofstream(folder.file("empty"));
    REQUIRE(!FileMedium::open(file_options(folder.file("empty")), not_wanted.get_token()));
    struct stat status{};
    REQUIRE(::stat(folder.file("empty").c_str(), &status) == 0);
    REQUIRE(status.st_size == 0);
}

// The loop waits for them, and all exports with it.
TEST_CASE("file storage: openings that fail a little late, again and again, are not waited for") {
    TemporaryFolder folder;
    const auto slowly = [](const StorageOptions& options, const std::stop_token& not_wanted) {
        std::this_thread::sleep_for(std::chrono::milliseconds(40));
        return FileMedium::open(options, not_wanted);
    };
    std::vector<std::shared_ptr<FileOpening>> begun(8);
    std::size_t not_waited_for = 0;
    // Patience is a thread's, and other cases have used that of this one.
    std::thread([&] {
        for (std::size_t i = 0; i < begun.size(); ++i) {
            const StorageOptions options = file_options(folder.file(std::to_string(i)));
            const auto opened =
                FileOpening::open(options, FileOpening::Attempt::again, begun[i], slowly);
            if (opened || opened.error().code != std::errc::connection_already_in_progress)
                continue;
            ++not_waited_for;
        }
    }).join();
    CHECK(not_waited_for > 0);
}

TEST_CASE("file storage: another file is another medium, the same one stays it") {
    TemporaryFolder folder;
    Bench bench;
    REQUIRE(!bench.open(file_options(folder.file("one"))));
    const MediumId one = bench.storage->geometry().medium;
    bench.close();
    REQUIRE(one.number != 0);
    REQUIRE(!bench.open(file_options(folder.file("other"))));
    const MediumId other = bench.storage->geometry().medium;
    REQUIRE(one.rules_out(other));
    // Where the file system lets files be known for ever.
    REQUIRE((one.uuid == Uuid{} || one.uuid != other.uuid));
    bench.close();
    REQUIRE(::rename(folder.file("one").c_str(), folder.file("moved").c_str()) == 0);
    REQUIRE(!bench.open(file_options(folder.file("moved"))));
    REQUIRE(bench.storage->geometry().medium == one);
}

TEST_CASE(
    "file storage: absent without a size is ENOENT; with one it is created, sparse, for us only") {
    TemporaryFolder folder;
    Bench bench;
    StorageOptions options = file_options(folder.file("new"));
    options.size_bytes.reset();
    REQUIRE(bench.open(options) == std::errc::no_such_file_or_directory);
    options.size_bytes = size;
    REQUIRE(!bench.open(options));
    struct stat status{};
    REQUIRE(::stat(options.path.c_str(), &status) == 0);
    REQUIRE(status.st_size == size);
    REQUIRE(status.st_blocks == 0);
    REQUIRE((status.st_mode & 0777) == 0600);
    bench.close();
    options.size_bytes = 2 * size;  // there already: its own size counts
    REQUIRE(!bench.open(options));
    REQUIRE(bench.storage->geometry().size_bytes == size);
    REQUIRE(bench.storage->description() == "file " + options.path);
}

TEST_CASE("file storage: a link to nothing is told as such, and nothing is created") {
    TemporaryFolder folder;
    Bench bench;
    StorageOptions options = file_options(folder.file("link"));
    std::filesystem::create_symlink(folder.file("nowhere"), options.path);
    const std::string told =
        options.path + ": is a symbolic link to " + folder.file("nowhere") + ", which is not there";
    for (const bool sized : {true, false}) {
        if (!sized) options.size_bytes.reset();
        REQUIRE(bench.open(options) == std::errc::no_such_file_or_directory);
        CHECK(bench.last_text.starts_with(told));
    }
    REQUIRE(!std::filesystem::exists(folder.file("nowhere")));
    std::ofstream(folder.file("nowhere")).close();
    options.size_bytes = size;
    REQUIRE(!bench.open(options));
}

TEST_CASE("file storage: an empty file is given the size, or refused if there is none") {
    TemporaryFolder folder;
    Bench bench;
    StorageOptions options = file_options(folder.file("empty"));
    ::close(::open(options.path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    options.size_bytes.reset();
    REQUIRE(bench.open(options) == std::errc::invalid_argument);
    options.size_bytes = size;
    REQUIRE(!bench.open(options));
    REQUIRE(bench.storage->geometry().size_bytes == size);
}

TEST_CASE("file storage: what is no file is refused with a word on it") {
    TemporaryFolder folder;
    Bench bench;
    REQUIRE(bench.open(file_options("/dev/null")) == std::errc::invalid_argument);
    StorageOptions kernels = file_options("/proc/self/comm");
    kernels.io = StorageOptions::Io::buffered;
    REQUIRE(bench.open(kernels) == std::errc::invalid_argument);
    REQUIRE(bench.open(file_options(folder.file("."))) == std::errc::invalid_argument);
    const std::string fifo = folder.file("fifo");
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    REQUIRE(bench.open(file_options(fifo)) == std::errc::invalid_argument);
    REQUIRE(bench.open(read_only(file_options(fifo))) == std::errc::invalid_argument);
    REQUIRE(bench.open(file_options(folder.file("no/such/folder"))) ==
            std::errc::no_such_file_or_directory);
    StorageOptions odd = file_options(folder.file("odd"));
    ::close(::open(odd.path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    REQUIRE(::truncate(odd.path.c_str(), 4096 + 512) == 0);
    REQUIRE(bench.open(odd) == std::errc::invalid_argument);
    odd.logical_block_bytes = 512;
    REQUIRE(!bench.open(odd));
}

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

TEST_CASE("file storage: a file that shrank answers EIO beyond its end, never zeroes") {
    TemporaryFolder folder;
    for (const auto io : {StorageOptions::Io::buffered, StorageOptions::Io::direct}) {
        for (const off_t left : {0, 4096, 5000, 65536}) {
            StorageOptions options = file_options(folder.file("image"));
            std::filesystem::remove(options.path);
            options.io = io;
            Bench bench;
            if (bench.open(options)) {
                skip_part(bench.last_text);
                continue;
            }
            REQUIRE(::truncate(options.path.c_str(), left) == 0);
            Pages pages(131072);
            REQUIRE(bench.read(131072, pages.bytes()) == EIO);  // all of it beyond
            REQUIRE(bench.read(0, pages.bytes()) == EIO);       // the end within
            if (left >= 4096) REQUIRE(bench.read(0, pages.bytes().first(4096)) == 0);
            REQUIRE(bench.extents(0, size, 10).error() == std::errc::io_error);
        }
    }
}

TEST_CASE("file storage: check tells when the file was deleted or replaced") {
    TemporaryFolder folder;
    const StorageOptions options = file_options(folder.file("image"));
    Bench bench;
    REQUIRE(!bench.open(options));
    REQUIRE(!bench.storage->check());
    const std::string aside = folder.file("aside");
    REQUIRE(::rename(options.path.c_str(), aside.c_str()) == 0);
    look_until(bench, gone);
    ::close(::open(options.path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    look_until(bench, gone);
    REQUIRE(::rename(aside.c_str(), options.path.c_str()) == 0);
    look_until(bench, {});
}

TEST_CASE("file storage: that its path cannot be looked at says nothing of the file") {
    TemporaryFolder folder;
    const StorageOptions options = file_options(folder.file("image"));
    Bench bench;
    REQUIRE(!bench.open(options));
    const std::string itself = folder.file(".");
    REQUIRE(::chmod(itself.c_str(), 0) == 0);
    {
        const WithoutRootsRights plain;
        struct stat status{};
        CHECK(::stat(options.path.c_str(), &status) == -1);
        CHECK(errno == EACCES);
        CHECK(!bench.storage->check());
    }
    REQUIRE(::chmod(itself.c_str(), 0700) == 0);
    // With rights again: who looks keeps those it began with.
    bench.close();
    // A part of the path is a file now.
    std::filesystem::create_directory(folder.file("sub"));
    Bench below;
    REQUIRE(!below.open(file_options(folder.file("sub/image"))));
    std::filesystem::remove_all(folder.file("sub"));
    std::ofstream(folder.file("sub")) << "x";
    look_until(below, gone);
}

TEST_CASE("file storage: a write that fails part of the way reports its error") {
    TemporaryFolder folder;
    const StorageOptions options = file_options(folder.file("image"));
    const int errors = in_child([&] {
        ::signal(SIGXFSZ, SIG_IGN);
        Bench bench;
        if (bench.open(options)) return 1;
        const rlimit limit{size / 2, size / 2};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
        Pages pages(size);
        pages.fill(0x42);
        if (bench.write(0, pages.bytes()) != EFBIG) return 3;  // half of it went through before
        if (bench.write(size - 4096, pages.bytes().first(4096)) != EFBIG) return 4;
        if (bench.read(0, pages.bytes().first(size / 2)) != 0) return 5;
        return pages.all(0x42, 0, size / 2) ? 0 : 6;
    });
    REQUIRE(errors == 0);
}

TEST_CASE("file storage: discard gives blocks back, no_unmap keeps them") {
    TemporaryFolder folder;
    const StorageOptions options = file_options(folder.file("image"));
    Bench bench;
    REQUIRE(!bench.open(options));
    if (bench.storage->geometry().discard_bytes_max == 0) {
        skip("the file system cannot punch holes");
        return;
    }
    auto allocated = [&] {
        struct stat status{};
        REQUIRE(::stat(options.path.c_str(), &status) == 0);
        return static_cast<std::uint64_t>(status.st_blocks) * 512;
    };
    Pages pages(size);
    pages.fill(0x42);
    REQUIRE(bench.write(0, pages.bytes(), Flag::fua) == 0);
    REQUIRE(allocated() >= size);
    REQUIRE(bench.write_zeroes(0, size, Flag::no_unmap) == 0);
    REQUIRE(allocated() >= size);
    REQUIRE(bench.write_zeroes(0, size / 2) == 0);
    REQUIRE(allocated() <= 3 * size / 4);
    REQUIRE(bench.discard(0, size, Flag::fua) == 0);
    REQUIRE(allocated() < size / 2);
}

TEST_CASE("file storage: memory that nobody touches is not committed") {
    Bench bench;
    StorageOptions options{
        .kind = StorageOptions::Kind::memory, .path = {}, .size_bytes = 1ull << 40};
    if (const std::error_code error = bench.open(options)) {
        skip(bench.last_text + ": " + error.message());
        return;
    }
    Pages pages(4096);
    REQUIRE(bench.read((1ull << 40) - 4096, pages.bytes()) == 0);
    REQUIRE(bench.write((1ull << 40) - 4096, pages.bytes()) == 0);
    REQUIRE(bench.discard(0, 1u << 30) == 0);
}

TEST_CASE("files: grow and are cut, and tell when somebody else has done it") {
    TemporaryFolder folder;
    Bench bench;
    REQUIRE(!bench.open({.path = folder.file("image"), .size_bytes = 1u << 20}));
    Pages pages(4096);
    pages.fill(0x11);
    REQUIRE(bench.write((1u << 20) - 4096, pages.bytes()) == 0);
    REQUIRE(bench.storage->resize(2u << 20));
    REQUIRE(bench.storage->geometry().size_bytes == 2u << 20);
    REQUIRE(bench.write((2u << 20) - 4096, pages.bytes()) == 0);
    REQUIRE(bench.storage->resize(1u << 20));
    REQUIRE(std::filesystem::file_size(folder.file("image")) == 1u << 20);
    std::filesystem::resize_file(folder.file("image"), 3u << 20);
    REQUIRE(bench.storage->geometry().size_bytes == 1u << 20);
    REQUIRE(bench.storage->measure() == 3u << 20);
    while (bench.storage->last_measured() != 3u << 20) look_until(bench, {});
    REQUIRE(bench.storage->resize(3u << 20));
    // What was cut off does not come back.
    REQUIRE(bench.read((2u << 20) - 4096, pages.bytes()) == 0);
    REQUIRE(pages.all(0, 0, 4096));
}

TEST_CASE("files: a read-only export follows its file, and does not change it") {
    TemporaryFolder folder;
    Bench bench;
    REQUIRE(!bench.open({.path = folder.file("image"),
                         .size_bytes = 1u << 20,
                         .use = StorageOptions::Use::read_only}));
    const auto refused = bench.storage->resize(2u << 20);
    REQUIRE(!refused);
    REQUIRE(refused.error().code == std::errc::read_only_file_system);
    std::filesystem::resize_file(folder.file("image"), 2u << 20);
    REQUIRE(bench.storage->resize(2u << 20));
}

TEST_CASE("memory: keeps its content when it grows, and is zero beyond") {
    Bench bench;
    REQUIRE(!bench.open({.kind = StorageOptions::Kind::memory, .size_bytes = 65536}));
    Pages pages(4096);
    pages.fill(0x22);
    REQUIRE(bench.write(65536 - 4096, pages.bytes()) == 0);
    REQUIRE(bench.storage->resize(8u << 20));
    REQUIRE(bench.read(65536 - 4096, pages.bytes()) == 0);
    REQUIRE(pages.all(0x22, 0, 4096));
    REQUIRE(bench.storage->resize(65536));
    REQUIRE(bench.storage->resize(131072));
    REQUIRE(bench.read(65536, pages.bytes()) == 0);
    REQUIRE(pages.all(0, 0, 4096));
    // Also where the end was within a page of the system's.
    REQUIRE(bench.storage->resize(65536 - 4096 + 512));
    REQUIRE(bench.storage->resize(65536));
    REQUIRE(bench.read(65536 - 4096, pages.bytes()) == 0);
    REQUIRE(pages.all(0x22, 0, 512));
    REQUIRE(pages.all(0, 512, 4096 - 512));
}

TEST_CASE("file: another file in its place has another epoch") {
    TemporaryFolder folder;
    const StorageOptions options{.path = folder.file("image"), .size_bytes = 65536};
    Bench bench;
    REQUIRE(!bench.open(options));
    const std::uint64_t epoch = bench.storage->geometry().cache_epoch;
    // Both exist at a time: the number of the first is not used again.
    std::filesystem::rename(options.path, folder.file("old"));
    bench.close();
    REQUIRE(!bench.open(options));
    CHECK(bench.storage->geometry().cache_epoch != epoch);
}

// Who copies by extents would take it for zeroes.
TEST_CASE("file storage: what others have cut off is no hole, also when the file has grown again") {
    TemporaryFolder folder;
    Bench bench;
    const StorageOptions options = file_options(folder.file("file"));
    REQUIRE(!bench.open(options));
    for (const std::uint64_t bytes : {size / 2, size}) {
        std::filesystem::resize_file(options.path, bytes);
        while (bench.storage->last_measured() != bytes) look_until(bench, {});
        CHECK(bench.extents(size / 2, 4096, 10).error() == rtrs::from_errno(EIO));
        CHECK(bench.extents(0, size, 10).error() == rtrs::from_errno(EIO));
        CHECK(bench.extents(0, size / 2, 10));
    }
    REQUIRE(bench.storage->resize(size));
    CHECK(bench.extents(0, size, 10));
}

// What is data when its beginning is looked for may be a hole when its end is.
TEST_CASE("file storage: extents are never empty, whatever is punched meanwhile") {
    TemporaryFolder folder;
    Bench bench;
    const StorageOptions options = file_options(folder.file("file"));
    REQUIRE(!bench.open(options));
    const int fd = ::open(options.path.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(fd >= 0);
    std::atomic<bool> enough = false;
    std::thread punches([&] {
        const std::vector<char> block(4096, 'x');
        while (!enough) {
            const ssize_t written = ::pwrite(fd, block.data(), block.size(), 0);
            static_cast<void>(written);
            ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
        }
    });
    std::uint64_t empty = 0;
    for (int i = 0; i < 20000; ++i) {
        const auto extents = bench.extents(0, size, 10);
        if (!extents || extents->empty()) ++empty;
        if (!extents) continue;
        for (const StorageExtent& extent : *extents) empty += extent.bytes == 0 ? 1 : 0;
    }
    enough = true;
    punches.join();
    ::close(fd);
    CHECK(empty == 0);
}
