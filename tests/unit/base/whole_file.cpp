#include "rtrs/base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>

#include "rtrs/base/descriptor.h"
#include "rtrs/base/error.h"

namespace rtrs {
namespace {

TEST_CASE("a file is read and written as a whole, however long it is") {
    const std::unique_ptr<std::FILE, decltype(&std::fclose)> file(std::tmpfile(), &std::fclose);
    REQUIRE(file);
    const int fd = ::fileno(file.get());
    const std::string text = std::string(10000, 'a') + '\0' + "end";
    REQUIRE_FALSE(write_whole(fd, text));
    REQUIRE(::lseek(fd, 0, SEEK_SET) == 0);
    REQUIRE(read_whole(fd) == text);
    REQUIRE(read_whole(fd) == "");
}

TEST_CASE("why a file cannot be read or written is told") {
    const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    REQUIRE(full);
    REQUIRE(write_whole(full.get(), "text") == from_errno(ENOSPC));
    REQUIRE_FALSE(write_whole(full.get(), ""));
    const Descriptor folder(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    REQUIRE(folder);
    REQUIRE(read_whole(folder.get()).error() == from_errno(EISDIR));
}

}  // namespace
}  // namespace rtrs
