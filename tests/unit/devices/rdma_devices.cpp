#include "rtrs/rdma_devices.h"

#include <catch2/catch.hpp>
#include <map>

#include "rtrs/base/error.h"

using namespace rtrs;

namespace {

// A device by name; nothing can be done with it, except asking for windows.
class FakeFabric final : public Fabric {
  public:
    explicit FakeFabric(std::string device) : device_(std::move(device)) {}
    const char* name() const noexcept override { return "rdma"; }
    Duration connect_timeout() const noexcept override { return std::chrono::seconds(1); }
    std::string device() const override { return away ? std::string{} : device_; }
    void rename(std::string device) { device_ = std::move(device); }
    bool away = false;
    std::expected<std::unique_ptr<ProtectionDomain>, std::error_code> create_domain() override {
        return std::unexpected(from_errno(ENOTSUP));
    }
    std::expected<std::unique_ptr<Listener>, std::error_code> listen(const std::string&,
                                                                     ListenerHandler&) override {
        return std::unexpected(from_errno(ENOTSUP));
    }
    std::expected<std::unique_ptr<Endpoint>, std::error_code> connect(ProtectionDomain&,
                                                                      const std::string&,
                                                                      const std::string&, Bytes,
                                                                      const EndpointOptions&,
                                                                      EndpointHandler&) override {
        return std::unexpected(from_errno(ENOTSUP));
    }

  private:
    std::string device_;
};

std::expected<std::unique_ptr<Fabric>, std::error_code> make(const std::string& host) {
    if (host == "10.0.0.1" || host == "10.0.0.2") return std::make_unique<FakeFabric>("one");
    if (host == "127.0.0.1") return std::make_unique<FakeFabric>("loopback");
    return std::unexpected(from_errno(host == "10.0.0.9" ? EMFILE : ENODEV));
}

}  // namespace

TEST_CASE("rdma devices: one fabric per device, chosen by the address") {
    RdmaDevices devices(make);
    const auto first = devices.at("10.0.0.1");
    REQUIRE(first);
    CHECK(*devices.at("10.0.0.2") == *first);
    CHECK(*devices.at("10.0.0.1") == *first);
    const auto other = devices.at("127.0.0.1");
    REQUIRE(other);
    CHECK(*other != *first);
    // The source decides if there is one, else the system's routes.
    CHECK(*devices.towards("10.0.0.2", "127.0.0.1:1234") == *first);
    CHECK(*devices.towards("", "127.0.0.1:1234") == *other);
}

TEST_CASE("rdma devices: a device that was away has the fabric that it had") {
    RdmaDevices devices(make);
    const auto first = devices.at("10.0.0.1");
    REQUIRE(first);
    static_cast<FakeFabric&>(**first).away = true;
    CHECK(*devices.at("10.0.0.1") == *first);
    CHECK(*devices.at("10.0.0.2") == *first);
}

TEST_CASE("rdma devices: devices that come back under each other's names are told apart") {
    std::map<std::string, std::string> names = {{"10.0.0.1", "one"}, {"10.0.1.1", "two"}};
    RdmaDevices devices(
        [&](const std::string& host) -> std::expected<std::unique_ptr<Fabric>, std::error_code> {
            if (names[host].empty()) return std::unexpected(from_errno(ENODEV));
            return std::make_unique<FakeFabric>(names[host]);
        });
    const auto first = devices.at("10.0.0.1");
    const auto second = devices.at("10.0.1.1");
    REQUIRE(first);
    REQUIRE(second);
    CHECK(*first != *second);
    auto& one = static_cast<FakeFabric&>(**first);
    auto& two = static_cast<FakeFabric&>(**second);
    SECTION("both have seen it") {
        names = {{"10.0.0.1", "two"}, {"10.0.1.1", "one"}};
        one.rename("two");
        two.rename("one");
        CHECK(*devices.at("10.0.0.1") == *first);
        CHECK(*devices.at("10.0.1.1") == *second);
    }
    SECTION("one is away still, whose device has gone for good") {
        names = {{"10.0.0.1", ""}, {"10.0.1.1", "one"}};
        one.away = two.away = true;
        CHECK(*devices.at("10.0.1.1") == *second);
        names["10.0.2.1"] = "one";
        CHECK(*devices.at("10.0.2.1") == *second);
    }
}

TEST_CASE("rdma devices: errors say what is missing") {
    RdmaDevices devices(make);
    CHECK(devices.at("10.0.0.7").error().text.find("no RDMA device has the address 10.0.0.7") == 0);
    CHECK(devices.at("10.0.0.9").error().text.find("cannot be used") != std::string::npos);
    CHECK(devices.towards("", "nowhere:1").error().text.find("nowhere:1 cannot be reached") == 0);
    CHECK(devices.at("10.0.0.7").error().code == std::errc::no_such_device);
    CHECK(devices.at("10.0.0.9").error().code == std::errc::too_many_files_open);
    RdmaDevices none({});
    CHECK(none.at("10.0.0.1").error().code == std::errc::operation_not_supported);
    CHECK(none.at("10.0.0.1").error().text.find("RDMA is not built in") == 0);
    CHECK(none.towards("", "127.0.0.1:1").error().text.find("RDMA is not built in") == 0);
}

TEST_CASE("rdma devices: windows that cannot be had do not work") {
    FakeFabric fabric("one");
    CHECK_FALSE(windows_work(fabric));
}

TEST_CASE("rdma devices: the source of a destination") {
    CHECK(source_towards("127.0.0.1:9") == "127.0.0.1");
    CHECK(source_towards("[::1]:9").value_or("::1") == "::1");
    CHECK_FALSE(source_towards("127.0.0.1"));
    CHECK_FALSE(source_towards("127.0.0.1:port"));
}
