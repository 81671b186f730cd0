// The fabric and the tracer of a session: what is chosen, not made, by the library.
#pragma once

#include <memory>

#include "librnbd/settings.h"
#include "rtrs/fabric.h"
#include "rtrs/reactor.h"
#include "rtrs/trace.h"

namespace rnbd::library {

// Lives shorter than the reactor.
std::unique_ptr<rtrs::Fabric> make_fabric(rtrs::Reactor& reactor, const Settings& settings);
std::unique_ptr<rtrs::Tracer> make_tracer();

}  // namespace rnbd::library
