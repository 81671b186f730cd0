// The TCP fabric for the contract suite.
#include "tests/contract/fabric/tcp_under_test.h"

namespace rtrs::contract {

std::unique_ptr<FabricUnderTest> make_under_test() { return std::make_unique<TcpUnderTest>(); }

}  // namespace rtrs::contract
