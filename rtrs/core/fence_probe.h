// Finds out whether the server has finished with a lost path, over the addresses of a path that is
// up. For servers without sequence numbers (protection fenced), where nothing else can tell.
//
// A connect request with the lost path's id is refused with ECONNRESET while the server still has
// that path. The server keeps it until every operation that came over it has ended. When the path
// is gone, the request is accepted, or refused with EEXIST because of the addresses: then nothing
// that was sent over the path can run any more. SOURCE: rtrs_rdma_connect() and
// rtrs_srv_close_work() of Linux 6.12, drivers/infiniband/ulp/rtrs/rtrs-srv.c;
// docs/reference/wire-rtrs.md has the order of the checks.
//
// OWNER: ClientSession, one per path. THREAD: the session's.
#pragma once

#include <memory>

#include "rtrs/client.h"
#include "rtrs/fabric.h"

namespace rtrs {

class FenceProbe;

class FenceProbeOwner {
  public:
    // Dials with the lost path's id over a path that is up. Returns null, or an error, if that is
    // not possible now.
    virtual std::expected<std::unique_ptr<Endpoint>, std::error_code> dial_fence_probe(
        FenceProbe& probe) = 0;
    // The server has finished with the path. Called once; the probe has stopped by then.
    virtual void path_is_fenced(FenceProbe& probe) = 0;
    // The probe that stopped is drained: it may be destroyed from here on, but not inside this
    // call.
    virtual void fence_probe_drained() = 0;

  protected:
    ~FenceProbeOwner() = default;
};

class FenceProbe final : public EndpointHandler {
  public:
    FenceProbe(Clock& clock, const ClientSessionOptions& options, FenceProbeOwner& owner);
    ~FenceProbe();
    FenceProbe(const FenceProbe&) = delete;
    FenceProbe& operator=(const FenceProbe&) = delete;

    // Asks repeatedly until the answer is yes, or stop() is called. Does nothing if it is asking
    // already.
    void start();
    void stop();
    bool drained() const noexcept { return endpoint_ == nullptr; }

    // EndpointHandler
    void on_established(Bytes private_data) override;
    void on_rejected(Bytes private_data) override;
    void on_completion(const Completion&) override {}
    void on_disconnected(std::error_code reason) override;
    void on_drained() override;

  private:
    void deadline();
    void ask();
    void again();
    void gone();

    Clock& clock_;
    const ClientSessionOptions& options_;
    FenceProbeOwner& owner_;
    Timer timer_;  // for the next question, or for the timeout of this one
    Duration delay_{};
    std::unique_ptr<Endpoint> endpoint_;
    bool active_ = false;
    bool asked_ = false;  // the endpoint's answer is still wanted
};

}  // namespace rtrs
