// Listening, and the connect requests that result.
//
// THREAD: the fabric's.
#pragma once

#include <rdma/rdma_cma.h>

#include <expected>
#include <memory>
#include <string>
#include <system_error>

#include "rtrs/fabric.h"
#include "rtrs/fabric/verbs/engine.h"
#include "rtrs/sockets/address.h"

namespace rtrs::verbs {

class VerbsConnectRequest final : public ConnectRequest, public CmOwner {
  public:
    // Owns request.id.
    VerbsConnectRequest(std::shared_ptr<Engine> engine, const CmEvent& request);
    ~VerbsConnectRequest() override;

    Bytes private_data() const noexcept override { return request_.data(); }
    std::string local_address() const override { return local_address_; }
    std::string remote_address() const override { return remote_address_; }
    // ERRORS: also EINVAL (depths).
    std::expected<std::unique_ptr<Endpoint>, std::error_code> accept(
        ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
        EndpointHandler& handler) override;
    void reject(Bytes private_data) override;

    // Any event on an unanswered request ends it.
    void on_cm_event(const CmEvent&) override { peer_gone_ = true; }

  private:
    std::shared_ptr<Engine> engine_;
    CmEvent request_;
    rdma_cm_id* id_;  // null: answered, or the peer has gone
    bool peer_gone_ = false;
    std::string local_address_;
    std::string remote_address_;
};

class VerbsListener final : public Listener, public CmOwner, public ListLink {
  public:
    // ERRORS: EADDRINUSE, EACCES, EADDRNOTAVAIL, ENODEV (an address of another device), ENOMEM.
    static std::expected<std::unique_ptr<VerbsListener>, std::error_code> create(
        std::shared_ptr<Engine> engine, const Address& address, ListenerHandler& handler);
    ~VerbsListener() override;
    std::string address() const override { return address_; }
    void on_cm_event(const CmEvent& event) override;

    // For the engine: let_go() keeps nothing of the device; take_up() listens again, if it does not
    // yet.
    void let_go() noexcept;
    std::error_code take_up();

  private:
    VerbsListener(std::shared_ptr<Engine> engine, ListenerHandler& handler) noexcept
        : engine_(std::move(engine)), handler_(handler) {
        engine_->add(*this);
    }
    std::error_code listen(Address address);
    void end() noexcept;

    std::shared_ptr<Engine> engine_;
    ListenerHandler& handler_;
    rdma_cm_id* id_ = nullptr;
    Address bound_;
    std::string address_;
    std::error_code told_error_;  // why it does not listen again; logged once
};

}  // namespace rtrs::verbs
