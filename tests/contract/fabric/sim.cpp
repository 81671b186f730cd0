#include "tests/contract/fabric/sim_under_test.h"

namespace rtrs::contract {

// Every test gets other delays; which ones depends only on the order of the tests.
std::unique_ptr<FabricUnderTest> make_under_test() {
    static std::uint64_t seed = 0;
    return std::make_unique<SimUnderTest>(SimOptions{.seed = ++seed});
}

}  // namespace rtrs::contract
