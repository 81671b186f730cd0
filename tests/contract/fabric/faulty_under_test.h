// Any fabric under test behind the fault decorator, which does nothing until it is told to.
#pragma once

#include "rtrs/fabric/fault/faulty_fabric.h"
#include "tests/contract/fabric/under_test.h"

namespace rtrs::contract {

class FaultyUnderTest final : public FabricUnderTest {
  public:
    struct Clocks {
        Clock& client;
        Clock& server;
    };
    FaultyUnderTest(std::unique_ptr<FabricUnderTest> inner, const Clocks& clocks,
                    const FaultOptions& options)
        : inner_(std::move(inner)),
          client_(inner_->client(), clocks.client, options),
          server_(inner_->server(), clocks.server, options) {}

    Fabric& client() override { return client_; }
    Fabric& server() override { return server_; }
    FaultyFabric& faulty_client() { return client_; }
    FaultyFabric& faulty_server() { return server_; }
    std::string server_address() const override { return inner_->server_address(); }
    std::string client_host() const override { return inner_->client_host(); }
    std::string deserted_address() const override { return inner_->deserted_address(); }
    bool pump_until(const std::function<bool()>& done) override { return inner_->pump_until(done); }
    void settle() override { inner_->settle(); }
    bool kill_server() override { return inner_->kill_server(); }

  private:
    std::unique_ptr<FabricUnderTest> inner_;
    FaultyFabric client_, server_;
};

}  // namespace rtrs::contract
