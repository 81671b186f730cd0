// What only files can do: be absent, shrunk, replaced, or the wrong thing.
#include "tests/contract/storage/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "rnbd-server/storage/file_medium.h"
#include "rnbd-server/storage/file_opening.h"
#include "rtrs/base/descriptor.h"
#include "rtrs/base/descriptors.h"
#include "tests/contract/storage/support.h"
#include "tests/skip.h"

using namespace rnbd;
using namespace rnbd::testing;

namespace {

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

TEST_CASE("file storage: the last descriptors of the process are not for files") {
    TemporaryFolder folder;
    const int failed = in_child([&] {
        using For = DescriptorRoom::For;
        constexpr rlim_t all = 64;
        const rlimit limit{all, all};
        if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
        const auto left = [] {
            const rtrs::Descriptor newest(::open("/", O_PATH | O_CLOEXEC));
            return rtrs::descriptors_left(newest.get());
        };
        std::vector<FileMedium> media;
        const auto open = [&](For whom) {
            const StorageOptions options = file_options(folder.file(std::to_string(media.size())));
            std::shared_ptr<FileOpening> begun;
            for (;;) {
                auto opened = FileOpening::open(options, FileOpening::Attempt::first, whom, begun);
                if (opened) media.push_back(std::move(*opened));
                if (opened) return std::string();
                if (opened.error().code == std::errc::too_many_files_open) {
                    return begun ? "it was begun" : opened.error().text;
                }
                if (!begun) return "another error: " + opened.error().text;
            }
        };
        std::string why;
        while (why.empty()) why = open(For::newcomer);
        const std::string next = folder.file(std::to_string(media.size()));
        if (why != next + ": hardly any descriptors left (ulimit -n)") return 2;
        // Nothing is made that then cannot be opened.
        if (::access(next.c_str(), F_OK) == 0) return 3;
        if (media.size() < 10 || left().to_new > 1 || left().to_known < 8) return 4;
        // Whoever used it has a little more room, and leaves some.
        const std::size_t newcomers = media.size();
        do why = open(For::returning);
        while (why.empty());
        if (media.size() == newcomers || left().to_known > 1) return 5;
        if (all - rtrs::descriptors_open(0) < 8) return 6;
        while (media.size() >= newcomers) media.pop_back();
        return open(For::newcomer).empty() ? 0 : 7;
    });
    CHECK(failed == 0);
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
    // The wait budget is a thread's, and other cases have used that of this one.
    std::thread([&] {
        for (std::size_t i = 0; i < begun.size(); ++i) {
            const StorageOptions options = file_options(folder.file(std::to_string(i)));
            const auto opened = FileOpening::open(options, FileOpening::Attempt::again,
                                                  DescriptorRoom::For::newcomer, begun[i], slowly);
            if (opened || opened.error().code != std::errc::connection_already_in_progress)
                continue;
            ++not_waited_for;
        }
    }).join();
    CHECK(not_waited_for > 0);
}

TEST_CASE("file storage: of many openings that come at once, few are waited for") {
    TemporaryFolder folder;
    const auto slowly = [](const StorageOptions& options, const std::stop_token& not_wanted) {
        std::this_thread::sleep_for(std::chrono::milliseconds(40));
        return FileMedium::open(options, not_wanted);
    };
    std::vector<std::shared_ptr<FileOpening>> begun(60);
    const auto open = [&](std::size_t i) {
        const StorageOptions options = file_options(folder.file(std::to_string(i)));
        return FileOpening::open(options, FileOpening::Attempt::first,
                                 DescriptorRoom::For::newcomer, begun[i], slowly);
    };
    std::size_t waited_for = 0;
    std::size_t came_later = 0;
    std::thread([&] {
        std::vector<std::size_t> late;
        for (std::size_t i = 0; i < begun.size(); ++i) {
            if (open(i)) {
                ++waited_for;
            } else if (begun[i]) {
                late.push_back(i);
            }
        }
        for (const std::size_t i : late) {
            bool opened = open(i).has_value();
            while (!opened && begun[i]) {
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
                opened = open(i).has_value();
            }
            if (opened) ++came_later;
        }
    }).join();
    CHECK(waited_for < begun.size() / 2);
    CHECK(waited_for + came_later == begun.size());
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
    options.size_bytes = file_bytes;
    REQUIRE(!bench.open(options));
    struct stat status{};
    REQUIRE(::stat(options.path.c_str(), &status) == 0);
    REQUIRE(status.st_size == file_bytes);
    REQUIRE(status.st_blocks == 0);
    REQUIRE((status.st_mode & 0777) == 0600);
    bench.close();
    options.size_bytes = 2 * file_bytes;  // there already: its own size counts
    REQUIRE(!bench.open(options));
    REQUIRE(bench.storage->geometry().size_bytes == file_bytes);
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
    options.size_bytes = file_bytes;
    REQUIRE(!bench.open(options));
}

// As root, where anybody may make files there.
TEST_CASE("file storage: no file is created where a device is awaited") {
    Bench bench;
    const std::string name = "/dev/rnbd-test-" + std::to_string(::getpid());
    for (const std::string& path :
         {name, name + "/by-id/disk", "/" + name, "/dev/shm/.." + name.substr(4)}) {
        StorageOptions options = file_options(path);
        for (const bool sized : {true, false}) {
            if (!sized) options.size_bytes.reset();
            CHECK(bench.open(options) == std::errc::no_such_file_or_directory);
            CHECK(bench.last_text == path + ": not there; no file is created in /dev");
        }
        CHECK(!std::filesystem::exists(path));
    }
    std::filesystem::remove(name);
}

TEST_CASE("file storage: an empty file is given the size, or refused if there is none") {
    TemporaryFolder folder;
    Bench bench;
    StorageOptions options = file_options(folder.file("empty"));
    ::close(::open(options.path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    options.size_bytes.reset();
    REQUIRE(bench.open(options) == std::errc::invalid_argument);
    options.size_bytes = file_bytes;
    REQUIRE(!bench.open(options));
    REQUIRE(bench.storage->geometry().size_bytes == file_bytes);
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
            REQUIRE(bench.extents(0, file_bytes, 10).error() == std::errc::io_error);
            // What a read has found is remembered: no write brings it back as zeroes.
            REQUIRE(bench.write(file_bytes - 4096, pages.bytes().first(4096)) == EIO);
            REQUIRE(bench.read(131072, pages.bytes().first(4096)) == EIO);
            REQUIRE(bench.storage->last_measured() == static_cast<std::uint64_t>(left));
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
        const rlimit limit{file_bytes / 2, file_bytes / 2};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
        Pages pages(file_bytes);
        pages.fill(0x42);
        if (bench.write(0, pages.bytes()) != EFBIG) return 3;  // half of it went through before
        if (bench.write(file_bytes - 4096, pages.bytes().first(4096)) != EFBIG) return 4;
        if (bench.read(0, pages.bytes().first(file_bytes / 2)) != 0) return 5;
        return pages.all(0x42, 0, file_bytes / 2) ? 0 : 6;
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
    Pages pages(file_bytes);
    pages.fill(0x42);
    REQUIRE(bench.write(0, pages.bytes(), Flag::fua) == 0);
    REQUIRE(allocated() >= file_bytes);
    REQUIRE(bench.write_zeroes(0, file_bytes, Flag::no_unmap) == 0);
    REQUIRE(allocated() >= file_bytes);
    REQUIRE(bench.write_zeroes(0, file_bytes / 2) == 0);
    REQUIRE(allocated() <= 3 * file_bytes / 4);
    REQUIRE(bench.discard(0, file_bytes, Flag::fua) == 0);
    REQUIRE(allocated() < file_bytes / 2);
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

TEST_CASE("files: reads leave no access time") {
    TemporaryFolder folder;
    for (const auto io : {StorageOptions::Io::buffered, StorageOptions::Io::direct}) {
        StorageOptions options = file_options(folder.file("image"));
        options.io = io;
        Bench bench;
        if (bench.open(options)) {
            skip_part(bench.last_text);
            continue;
        }
        // Older than the file: a read would set it on any file system that does so at all.
        const timespec times[] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 0, .tv_nsec = UTIME_NOW}};
        REQUIRE(::utimensat(AT_FDCWD, options.path.c_str(), times, 0) == 0);
        Pages pages(4096);
        REQUIRE(bench.read(0, pages.bytes()) == 0);
        struct stat status{};
        REQUIRE(::stat(options.path.c_str(), &status) == 0);
        REQUIRE(status.st_atim.tv_sec == 1);
    }
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
    for (const std::uint64_t bytes : {file_bytes / 2, file_bytes}) {
        std::filesystem::resize_file(options.path, bytes);
        while (bench.storage->last_measured() != bytes) look_until(bench, {});
        CHECK(bench.extents(file_bytes / 2, 4096, 10).error() == rtrs::from_errno(EIO));
        CHECK(bench.extents(0, file_bytes, 10).error() == rtrs::from_errno(EIO));
        CHECK(bench.extents(0, file_bytes / 2, 10));
    }
    REQUIRE(bench.storage->resize(file_bytes));
    CHECK(bench.extents(0, file_bytes, 10));
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
        const auto extents = bench.extents(0, file_bytes, 10);
        if (!extents || extents->empty()) ++empty;
        if (!extents) continue;
        for (const StorageExtent& extent : *extents) empty += extent.bytes == 0 ? 1 : 0;
    }
    enough = true;
    punches.join();
    ::close(fd);
    CHECK(empty == 0);
}
