// A tracer that drops every line: for a program whose users learn in another way what happens.
//
// THREAD: any.
#pragma once

#include "rtrs/trace.h"

namespace rtrs {

class NullTracer final : public Tracer {
  public:
    void trace(TraceLevel, std::string_view, std::string_view, std::string_view) override {}
};

}  // namespace rtrs
