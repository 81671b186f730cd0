// What cannot be tried on this machine is said aloud: tests/main.cpp lists it behind everything
// else, and a program all of whose cases were skipped exits as skipped (77).
#pragma once

#include <string_view>

namespace rnbd::testing {

// Of the case that runs, which the caller ends then.
void skip(std::string_view reason);
// Of a part of it: the case counts by what else it has.
void skip_part(std::string_view reason);

}  // namespace rnbd::testing
