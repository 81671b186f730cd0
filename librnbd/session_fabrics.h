// The fabrics and the tracer of a session. The library chooses them; rtrs/fabrics.h makes them.
#pragma once

#include <expected>
#include <memory>

#include "librnbd/settings.h"
#include "rtrs/fabric.h"
#include "rtrs/null_tracer.h"
#include "rtrs/rdma_devices.h"
#include "rtrs/reactor.h"

namespace rnbd::library {

bool rdma_is_built_in() noexcept;

// OWNER: Session. THREAD: the loop's.
// LIFE: the reactor outlives it, and it outlives the session's paths.
class SessionFabrics {
  public:
    SessionFabrics(rtrs::Reactor& reactor, const Settings& settings);

    // The path in the form that the transport takes. An RDMA device is opened when the first path
    // leads to it.
    std::expected<rtrs::PathAddress, rtrs::RdmaDevices::Error> address_of(const PathSetting& path);
    rtrs::Tracer& tracer() noexcept { return tracer_; }

  private:
    rtrs::NullTracer tracer_;  // a program is told by events and error texts
    std::unique_ptr<rtrs::Fabric> tcp_;
    rtrs::RdmaDevices rdma_;
};

}  // namespace rnbd::library
