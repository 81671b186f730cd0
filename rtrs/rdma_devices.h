// The RDMA fabrics of a program: one per device, made when an address first leads to it.
//
// THREAD: the reactor's (rtrs/reactor.h). Outlives everything that uses its fabrics.
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "rtrs/fabric.h"

namespace rtrs {

class RdmaDevices {
  public:
    // host: a numeric address of this machine. ERRORS: ENODEV (no device there), and others.
    using Make =
        std::function<std::expected<std::unique_ptr<Fabric>, std::error_code>(std::string)>;
    // An error and a sentence that names the address. Codes: ENODEV (no device there), EOPNOTSUPP
    // (built without RDMA), ENETUNREACH (no route), and others.
    struct Error {
        std::error_code code;
        std::string text;
    };
    // make: empty if the program was built without RDMA.
    explicit RdmaDevices(Make make) : make_(std::move(make)) {}

    // The fabric of the device that has this numeric address.
    std::expected<Fabric*, Error> at(const std::string& host);
    // The fabric by which destination ("HOST:PORT") is reached: that of the address source or, if
    // source is empty, of the local address that the system's routes choose.
    std::expected<Fabric*, Error> towards(const std::string& source,
                                          const std::string& destination);
    // What both functions return if make is empty.
    static Error not_built_in();

  private:
    // A fabric stays with its address: a device that comes back may have another name, and another
    // device the name that it had.
    struct Known {
        std::string host;
        std::unique_ptr<Fabric> fabric;
    };
    bool is_of(const Known& known, const std::string& device);

    Make make_;
    std::vector<Known> known_;
};

// The local address ("HOST") from which the system's routes reach "HOST:PORT"; nothing is sent.
// ERRORS: EINVAL (not numeric), ENETUNREACH and other errors of connect(2).
std::expected<std::string, std::error_code> source_towards(const std::string& destination);

// True if the fabric's devices have memory windows, and so can revoke a key at each request.
// Whether a window can also be bound shows only with the first connection
// (PortalOptions::Invalidate).
bool windows_work(Fabric& fabric);

}  // namespace rtrs
