// A connection request of a peer, with its socket.
#pragma once

#include <array>

#include "rtrs/fabric/tcp/frame.h"
#include "rtrs/fabrics.h"

namespace rtrs::tcp {

class TcpConnectRequest final : public ConnectRequest {
  public:
    // Owns fd. private_data is copied.
    TcpConnectRequest(Reactor& reactor, const TcpFabricOptions& options, int fd, const Hello& hello,
                      Bytes private_data) noexcept;
    ~TcpConnectRequest() override;

    Bytes private_data() const noexcept override;
    std::string local_address() const override;
    std::string remote_address() const override;
    DescriptorsLeft descriptors_left() const noexcept override;
    std::optional<NearestWorker> nearest_worker() const noexcept override;
    // ERRORS: also EMSGSIZE (private data), EINVAL (depths); then the request is still unanswered.
    std::expected<std::unique_ptr<Endpoint>, std::error_code> accept(
        ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
        EndpointHandler& handler) override;
    void reject(Bytes private_data) override;

  private:
    Reactor& reactor_;
    bool payload_crc_;
    bool zero_copy_;
    Tracer* tracer_;
    std::uint16_t peer_reads_max_;
    int fd_;  // -1: answered
    std::array<std::byte, private_data_request_max> private_data_{};
    std::size_t private_bytes_;
};

}  // namespace rtrs::tcp
