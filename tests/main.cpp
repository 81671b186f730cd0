#define CATCH_CONFIG_RUNNER
#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>
#include <string>
#include <vector>

#include "tests/skip.h"

namespace rnbd::testing {
namespace {

// SKIP_RETURN_CODE in cmake/rnbd.cmake.
constexpr int exit_skipped = 77;

// Of the cases that ran.
struct Skips {
    std::size_t cases = 0;
    std::size_t whole = 0;
    bool this_one = false;
    std::string name;
    std::vector<std::string> lines;
};

Skips& skips() {
    static Skips all;
    return all;
}

struct Listener final : Catch::TestEventListenerBase {
    using TestEventListenerBase::TestEventListenerBase;
    void testCaseStarting(const Catch::TestCaseInfo& info) override {
        skips().name = info.name;
        skips().this_one = false;
    }
    void testCaseEnded(const Catch::TestCaseStats&) override {
        ++skips().cases;
        if (skips().this_one) ++skips().whole;
    }
};
CATCH_REGISTER_LISTENER(Listener)

}  // namespace

// A case runs once for each of its sections.
void skip_part(std::string_view reason) {
    std::string line = skips().name + ": " + std::string(reason);
    if (std::ranges::find(skips().lines, line) == skips().lines.end()) {
        skips().lines.push_back(std::move(line));
    }
}

void skip(std::string_view reason) {
    skips().this_one = true;
    skip_part(reason);
}

}  // namespace rnbd::testing

int main(int argc, char** argv) {
    const int result = Catch::Session().run(argc, argv);
    const auto& skips = rnbd::testing::skips();
    std::cout.flush();
    for (const std::string& line : skips.lines) std::cerr << "skipped: " << line << '\n';
    if (result == 0 && skips.cases > 0 && skips.whole == skips.cases) {
        return rnbd::testing::exit_skipped;
    }
    // So many that failed are not skipped.
    return result == rnbd::testing::exit_skipped ? 1 : result;
}
