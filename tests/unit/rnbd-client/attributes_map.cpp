#include "rnbd-client/attributes_map.h"

#include <catch2/catch.hpp>
#include <cerrno>

using namespace rnbd;

namespace {

int error_of(const std::string& text) {
    const auto options = MapOptions::parse(text, 4);
    return options ? 0 : options.error().number;
}

}  // namespace

TEST_CASE("map_device: options as kernel RNBD takes them") {
    const auto options = MapOptions::parse(
        " sessname=host-a  path=ip:10.0.0.1 dest_port=0x4d3 path=ip:10.0.0.9@ip:10.0.0.2 "
        "device_path=dir/vol access_mode=migration nr_poll_queues=-1\n",
        4);
    REQUIRE(options);
    CHECK(options->session == "host-a");
    CHECK(options->volume == "dir/vol");
    CHECK(options->access == AccessMode::migration);
    REQUIRE(options->paths.size() == 2);
    // A port counts for the paths behind it.
    CHECK(options->paths[0].port == 1234);
    CHECK(options->paths[1].port == 1235);
    CHECK(options->paths[1].address.source == "10.0.0.9");
}

TEST_CASE("map_device: what is wrong") {
    const std::string good = "sessname=a device_path=b ";
    CHECK(error_of(good) == 0);
    for (const char* more :
         {"x=1", "x", "path=", "path=10.0.0.1", "dest_port=65536", "dest_port=-1", "dest_port=x",
          "access_mode=RW", "nr_poll_queues=5", "nr_poll_queues=-2", "sessname="}) {
        CAPTURE(more);
        CHECK(error_of(good + more) == EINVAL);
    }
    CHECK(error_of("") == EINVAL);
    CHECK(error_of("sessname=a") == EINVAL);
    CHECK(error_of("device_path=a") == EINVAL);
    CHECK(error_of("device_path=a sessname=" + std::string(256, 'x')) == EINVAL);
    CHECK(error_of(good + "path=gid:fe80::1") == ENODEV);
    std::string paths;
    for (int i = 0; i < 6; ++i) paths += "path=ip:10.0.0.1 ";
    CHECK(error_of(good + paths) == 0);
    CHECK(error_of(good + paths + "path=ip:10.0.0.1") == ENOMEM);
}

TEST_CASE("map_device: a path as the configuration has it") {
    CHECK(configured_path({.source = "", .destination = "10.0.0.2"}, 1234) == "10.0.0.2:1234");
    CHECK(configured_path({.source = "fe80::1", .destination = "fe80::2"}, 1) ==
          "fe80::1@[fe80::2]:1");
}
