// The simulated fabric for the contract suite.
#pragma once

#include "rtrs/fabric/sim/sim_world.h"
#include "tests/contract/fabric/under_test.h"

namespace rtrs::contract {

class SimUnderTest : public FabricUnderTest {
  public:
    explicit SimUnderTest(const SimOptions& options)
        : world(options),
          server_host(world.add_host({"10.0.0.1"})),
          client_host_(world.add_host({"10.0.0.2"})) {}

    Fabric& client() override { return client_host_.fabric(); }
    Fabric& server() override { return server_host.fabric(); }
    std::string server_address() const override { return "10.0.0.1:0"; }
    std::string client_host() const override { return "10.0.0.2"; }
    std::string deserted_address() const override { return "10.0.0.1:9"; }
    bool pump_until(const std::function<bool()>& done) override {
        return world.run_until(done, std::chrono::seconds(60));
    }
    void settle() override { world.run_for(std::chrono::milliseconds(10)); }
    bool kill_server() override {
        server_host.crash(SimHost::CrashSeen::by_reset);
        return true;
    }

    Clock& client_clock() { return client_host_.clock(); }
    Clock& server_clock() { return server_host.clock(); }

    SimWorld world;
    SimHost& server_host;

  protected:
    SimHost& client_host_;
};

}  // namespace rtrs::contract
