// Chooses the bug of rnbd-server-planted (rtrs/base/planted.h): RNBD_PLANT=admission-off.
//
// That program is no part of the product. It shows that a test which the server passes would find
// the bug.
#include "rtrs/base/planted.h"

#include <cstdio>
#include <cstdlib>

namespace {

// Before main(), so that main.cpp is the product's.
const bool chosen = [] {
    const char* const name = std::getenv("RNBD_PLANT");
    if (name == nullptr) return false;
    for (const auto& [bug, text] : rtrs::planted_bug_names) {
        if (text != name) continue;
        rtrs::planted_bug = bug;
        return true;
    }
    std::fprintf(stderr, "rnbd-server-planted: no planted bug is called %s\n", name);
    std::exit(2);
}();

}  // namespace
