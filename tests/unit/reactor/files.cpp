// Files: read, write, fsync, fallocate, with and without pinned buffers.
#include <sys/mman.h>
#include <sys/uio.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/unit/reactor/support.h"

using namespace rtrs;
using namespace rtrs::testing;

namespace {

struct Pages {
    explicit Pages(std::size_t bytes) : size(bytes) {
        void* mapped =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(mapped != MAP_FAILED);
        data = static_cast<std::byte*>(mapped);
    }
    ~Pages() { ::munmap(data, size); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    MutableBytes bytes() const { return {data, size}; }
    std::byte* data;
    std::size_t size;
};

}  // namespace

TEST_CASE("reactor: what is written to a file is read back") {
    auto reactor = make_reactor();
    Descriptor file = temporary_file(8192);
    const std::string text = "some bytes";
    Recorded written;
    reactor->write(written, {file}, bytes_of(text), 100, RWF_DSYNC);
    REQUIRE(finish(*reactor, written) == 10);
    Recorded synced;
    reactor->fdatasync(synced, file);
    REQUIRE(finish(*reactor, synced) == 0);
    std::byte target[10];
    Recorded read;
    reactor->read(read, {file}, target, 100);
    REQUIRE(finish(*reactor, read) == 10);
    REQUIRE(text_of(target) == text);

    Recorded punched;
    reactor->fallocate(punched, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
    REQUIRE(finish(*reactor, punched) == 0);
    Recorded again;
    reactor->read(again, {file}, target, 100);
    REQUIRE(finish(*reactor, again) == 10);
    REQUIRE(text_of(target) == std::string(10, '\0'));
}

TEST_CASE("reactor: a file that begins slowly is written and read by another thread") {
    auto reactor = make_reactor();
    Descriptor file = temporary_file(8192);
    const auto workers = [] {
        int found = 0;
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string name;
            std::getline(std::ifstream(task.path() / "comm"), name);
            if (name.starts_with("iou-wrk")) ++found;
        }
        return found;
    };
    const std::string text = "some bytes";
    Recorded written;
    reactor->write(written, {.fd = file, .begins_slowly = true}, bytes_of(text), 100, 0);
    REQUIRE(finish(*reactor, written) == 10);
    REQUIRE(workers() > 0);
    std::byte target[10];
    Recorded read;
    reactor->read(read, {.fd = file, .begins_slowly = true}, target, 100);
    REQUIRE(finish(*reactor, read) == 10);
    REQUIRE(text_of(target) == text);
}

TEST_CASE("reactor: errors of files are handed on") {
    auto reactor = make_reactor();
    Descriptor read_only(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    Recorded written;
    reactor->write(written, {read_only}, bytes_of("x"), 0, 0);
    REQUIRE(finish(*reactor, written) == -EBADF);
    Recorded full;
    Descriptor full_device(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    const std::string text = "x";
    reactor->write(full, {full_device}, bytes_of(text), 0, 0);
    REQUIRE(finish(*reactor, full) == -ENOSPC);
}

TEST_CASE("reactor: pinned buffers read and write, their slots come back") {
    auto reactor = make_reactor({.fixed_buffers = 2});
    Descriptor file = temporary_file(65536);
    Pages source(16384);
    Pages target(16384);
    Pages third(4096);
    std::memset(source.data, 0x5a, source.size);
    auto from = reactor->register_buffer(source.bytes());
    auto to = reactor->register_buffer(target.bytes());
    REQUIRE(from);
    REQUIRE(to);
    REQUIRE(*from != *to);
    REQUIRE(reactor->register_buffer(third.bytes()).error() == std::errc::no_buffer_space);

    Recorded written;
    reactor->write(written, {file}, Bytes(source.data + 4096, 8192), 4096, 0, *from);
    REQUIRE(finish(*reactor, written) == 8192);
    Recorded read;
    reactor->read(read, {file}, MutableBytes(target.data, 8192), 4096, *to);
    REQUIRE(finish(*reactor, read) == 8192);
    REQUIRE(std::memcmp(source.data, target.data, 8192) == 0);

    Recorded outside;  // memory that is not the slot's
    reactor->read(outside, {file}, source.bytes(), 0, *to);
    REQUIRE(finish(*reactor, outside) == -EFAULT);

    reactor->unregister_buffer(*to);
    auto reused = reactor->register_buffer(third.bytes());
    REQUIRE(reused == *to);
    Recorded again;
    reactor->read(again, {file}, third.bytes(), 4096, *reused);
    REQUIRE(finish(*reactor, again) == 4096);
    REQUIRE(third.data[4095] == std::byte{0x5a});
    reactor->unregister_buffer(*from);
    reactor->unregister_buffer(*reused);
}

TEST_CASE("reactor: registered files read and write, their slots come back") {
    if (!files_are_registered_here()) return;
    auto reactor = make_reactor({.fixed_files = 1});
    Descriptor file = temporary_file(8192);
    Descriptor other = temporary_file(8192);
    const auto slot = reactor->register_file(file);
    REQUIRE(slot);
    REQUIRE(reactor->register_file(other).error() == std::errc::no_buffer_space);
    // The slot counts, not the descriptor beside it.
    const Reactor::File registered{other, *slot};
    const std::string text = "by its slot";
    Recorded written;
    reactor->write(written, registered, bytes_of(text), 10, 0);
    REQUIRE(finish(*reactor, written) == 11);
    file.close();  // the slot keeps it
    std::byte target[11];
    Recorded read;
    reactor->read(read, registered, target, 10);
    REQUIRE(finish(*reactor, read) == 11);
    REQUIRE(text_of(target) == text);

    reactor->unregister_file(*slot);
    Recorded gone;
    reactor->read(gone, registered, target, 10);
    REQUIRE(finish(*reactor, gone) == -EBADF);
    REQUIRE(reactor->register_file(other) == slot);
    Recorded empty;
    reactor->read(empty, registered, target, 10);
    REQUIRE(finish(*reactor, empty) == 11);
    REQUIRE(text_of(target) == std::string(11, '\0'));
}

TEST_CASE("reactor: without slots no buffer can be pinned and no file registered") {
    auto reactor = make_reactor({.fixed_buffers = 0, .fixed_files = 0});
    Pages memory(4096);
    REQUIRE(reactor->register_buffer(memory.bytes()).error() == std::errc::no_buffer_space);
    REQUIRE(reactor->register_file(0).error() == std::errc::no_buffer_space);
}
