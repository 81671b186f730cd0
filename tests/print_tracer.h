// Prints what the transport traces: the warnings, and with RNBD_TRACE set everything.
#pragma once

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "rtrs/trace.h"

namespace rtrs::testing {

class PrintTracer : public Tracer {
  public:
    void trace(TraceLevel level, std::string_view subsystem, std::string_view subject,
               std::string_view text) override {
        if (level < TraceLevel::warning && std::getenv("RNBD_TRACE") == nullptr) return;
        std::cerr << subsystem << ' ' << subject << ": " << text << '\n';
    }
};

}  // namespace rtrs::testing
