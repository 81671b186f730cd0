// The TCP fabric over loopback for the contract suite: both sides on one reactor.
#pragma once

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "rtrs/fabrics.h"
#include "tests/contract/fabric/under_test.h"

namespace rtrs::contract {

class TcpUnderTest : public FabricUnderTest {
  public:
    // accepting: of the side that listens.
    explicit TcpUnderTest(const TcpFabricOptions& accepting = {}) : reactor_(make_reactor()) {
        client_ = make_tcp_fabric(*reactor_, {});
        server_ = make_tcp_fabric(*reactor_, accepting);
    }

    Fabric& client() override { return *client_; }
    Fabric& server() override { return *server_; }
    std::string server_address() const override { return "127.0.0.1:0"; }
    std::string client_host() const override { return "127.0.0.1"; }
    // The discard port: nobody listens below 1024 on a machine that runs tests.
    std::string deserted_address() const override { return "127.0.0.1:9"; }

    bool pump_until(const std::function<bool()>& done) override {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (!done()) {
            if (std::chrono::steady_clock::now() > deadline) return false;
            reactor_->run_once(std::chrono::milliseconds(100));
        }
        return true;
    }
    void settle() override {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
        while (std::chrono::steady_clock::now() < end) {
            reactor_->run_once(std::chrono::milliseconds(5));
        }
    }

    Reactor& reactor() { return *reactor_; }

  private:
    // Without io_uring there is nothing to test: said aloud, exit 77.
    static std::unique_ptr<Reactor> make_reactor() {
        auto reactor = Reactor::create();
        if (reactor) return std::move(*reactor);
        std::cerr << "skipped: no reactor: " << reactor.error().message() << '\n';
        std::exit(77);
    }

    std::unique_ptr<Reactor> reactor_;
    std::unique_ptr<Fabric> client_, server_;
};

}  // namespace rtrs::contract
