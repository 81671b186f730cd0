// The RDMA fabrics of a daemon: one per device, made when an address first leads to it.
//
// OWNER: main. THREAD: the reactor's. Outlives everything that uses its fabrics.
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "rtrs/fabric.h"

namespace rnbd {

class RdmaDevices {
  public:
    // host: a numeric address of this machine. ERRORS: ENODEV (no device there), and others.
    using Make =
        std::function<std::expected<std::unique_ptr<rtrs::Fabric>, std::error_code>(std::string)>;
    // make: empty if the daemon was built without RDMA.
    explicit RdmaDevices(Make make) : make_(std::move(make)) {}

    // The fabric of the device that has this numeric address. The error is a sentence.
    std::expected<rtrs::Fabric*, std::string> at(const std::string& host);
    // The fabric by which destination ("HOST:PORT") is reached: that of source, or if it is empty
    // of the address that the system's routes choose.
    std::expected<rtrs::Fabric*, std::string> towards(const std::string& source,
                                                      const std::string& destination);

  private:
    Make make_;
    std::vector<std::unique_ptr<rtrs::Fabric>> fabrics_;
};

// The local address ("HOST") from which the system's routes reach "HOST:PORT"; nothing is sent.
// ERRORS: EINVAL (not numeric), ENETUNREACH and other errors of connect(2).
std::expected<std::string, std::error_code> source_towards(const std::string& destination);

// True if the fabric's devices can take a key back at each request: its memory windows work.
bool windows_work(rtrs::Fabric& fabric);

}  // namespace rnbd
