#include <cerrno>

#include "rtrs/fabric/tcp/domain.h"
#include "rtrs/fabric/tcp/endpoint.h"
#include "rtrs/fabric/tcp/listener.h"
#include "rtrs/fabrics.h"
#include "rtrs/sockets/address.h"

namespace rtrs {
namespace {

class TcpFabric final : public Fabric {
  public:
    TcpFabric(Reactor& reactor, const TcpFabricOptions& options) noexcept
        : reactor_(reactor), options_(options) {}

    const char* name() const noexcept override { return "tcp"; }
    Duration connect_timeout() const noexcept override { return options_.connect_timeout; }
    bool limits_packets() const noexcept override { return true; }

    std::expected<std::unique_ptr<ProtectionDomain>, std::error_code> create_domain() override {
        return std::make_unique<tcp::TcpDomain>();
    }

    std::expected<std::unique_ptr<Listener>, std::error_code> listen(
        const std::string& address, ListenerHandler& handler) override {
        const auto parsed = parse_address(address);
        if (!parsed) return std::unexpected(parsed.error());
        return tcp::make_listener(reactor_, options_, *parsed, handler);
    }

    std::expected<std::unique_ptr<Endpoint>, std::error_code> connect(
        ProtectionDomain& domain, const std::string& source, const std::string& destination,
        Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) override;

  private:
    Reactor& reactor_;
    TcpFabricOptions options_;
};

std::expected<std::unique_ptr<Endpoint>, std::error_code> TcpFabric::connect(
    ProtectionDomain& domain, const std::string& source, const std::string& destination,
    Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) {
    const auto route = parse_route(source, destination);
    if (!route) return std::unexpected(route.error());
    if (private_data.size() > private_data_request_max) {
        return std::unexpected(from_errno(EMSGSIZE));
    }
    auto endpoint = tcp::TcpEndpoint::create({reactor_.member(options.worker % reactor_.members()),
                                              static_cast<tcp::TcpDomain&>(domain), options,
                                              handler, options_.tracer});
    if (!endpoint) return std::unexpected(endpoint.error());
    using PayloadCrc = tcp::SendQueue::PayloadCrc;
    (*endpoint)->dial({route->source ? &*route->source : nullptr, route->destination, private_data,
                       options_.data_checksum == TcpFabricOptions::DataChecksum::on
                           ? PayloadCrc::computed
                           : PayloadCrc::none,
                       options_.connect_timeout});
    return std::unique_ptr<Endpoint>(std::move(*endpoint));
}

}  // namespace

std::unique_ptr<Fabric> make_tcp_fabric(Reactor& reactor, const TcpFabricOptions& options) {
    return std::make_unique<TcpFabric>(reactor, options);
}

}  // namespace rtrs
