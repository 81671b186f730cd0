#include "tests/contract/fabric/faulty_under_test.h"
#include "tests/contract/fabric/sim_under_test.h"

namespace rtrs::contract {

std::unique_ptr<FabricUnderTest> make_under_test() {
    static std::uint64_t seed = 0;
    auto sim = std::make_unique<SimUnderTest>(SimOptions{.seed = ++seed});
    const FaultyUnderTest::Clocks clocks{sim->client_clock(), sim->server_clock()};
    return std::make_unique<FaultyUnderTest>(std::move(sim), clocks, FaultOptions{.seed = seed});
}

}  // namespace rtrs::contract
