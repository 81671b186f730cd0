#include "tests/contract/fabric/faulty_under_test.h"
#include "tests/contract/fabric/tcp_under_test.h"

namespace rtrs::contract {

std::unique_ptr<FabricUnderTest> make_under_test() {
    auto tcp = std::make_unique<TcpUnderTest>();
    const FaultyUnderTest::Clocks clocks{tcp->reactor(), tcp->reactor()};
    return std::make_unique<FaultyUnderTest>(std::move(tcp), clocks, FaultOptions{});
}

}  // namespace rtrs::contract
