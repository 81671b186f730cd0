// The TCP fabric where the accepting side sends large payloads without a copy, as far as the kernel
// does not copy between sockets of one machine.
#include "tests/contract/fabric/tcp_under_test.h"

namespace rtrs::contract {

std::unique_ptr<FabricUnderTest> make_under_test() {
    TcpFabricOptions accepting;
    accepting.zero_copy = TcpFabricOptions::ZeroCopy::on;
    return std::make_unique<TcpUnderTest>(accepting);
}

}  // namespace rtrs::contract
