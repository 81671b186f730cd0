// Finds out whether the server has finished with a path that was lost, over the addresses of one
// that is up. For servers without sequences (protection fenced), where nothing else can tell.
//
// A connect request with the lost path's id is refused with ECONNRESET while the server still has
// that path, which it keeps until every operation that came over it has ended. It is accepted, or
// refused with EEXIST because of the addresses, when the path is gone: then nothing that was sent
// over it can run any more. SOURCE: rtrs_rdma_connect() and rtrs_srv_close_work() of Linux 6.12,
// drivers/infiniband/ulp/rtrs/rtrs-srv.c; docs/reference/wire-rtrs.md has the order of the checks.
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
    // Dials with the lost path's id over a path that is up. Null, or an error: not now.
    virtual std::expected<std::unique_ptr<Endpoint>, std::error_code> dial_fence_probe(
        FenceProbe& probe) = 0;
    // The server has finished with the path. Once; the probe has stopped.
    virtual void path_is_fenced(FenceProbe& probe) = 0;
    // What stopped is drained: it may be destroyed from here on, but not inside this call.
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

    // Asks again and again until the answer is yes, or stop(). Nothing if it does already.
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
    Timer timer_;  // the next question, or the end of the patience with this one
    Duration delay_{};
    std::unique_ptr<Endpoint> endpoint_;
    bool active_ = false;
    bool asked_ = false;  // the endpoint's answer is to a question that is still open
};

}  // namespace rtrs
