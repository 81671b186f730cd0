#include <cerrno>

#include "rtrs/fabric/verbs/domain.h"
#include "rtrs/fabric/verbs/endpoint.h"
#include "rtrs/fabric/verbs/engine.h"
#include "rtrs/fabric/verbs/listener.h"
#include "rtrs/fabrics.h"
#include "rtrs/sockets/address.h"

namespace rtrs {
namespace {

class VerbsFabric final : public Fabric {
  public:
    explicit VerbsFabric(std::shared_ptr<verbs::Engine> engine) noexcept
        : engine_(std::move(engine)) {
        engine_->start();
    }
    ~VerbsFabric() override { engine_->stop(); }

    const char* name() const noexcept override { return "rdma"; }
    Duration connect_timeout() const noexcept override { return engine_->connect_timeout(); }
    std::string device() const override {
        return engine_->device_is_there() ? engine_->device_name() : std::string{};
    }

    std::expected<std::unique_ptr<ProtectionDomain>, std::error_code> create_domain() override {
        return verbs::VerbsDomain::create(engine_);
    }

    std::expected<std::unique_ptr<Listener>, std::error_code> listen(
        const std::string& address, ListenerHandler& handler) override {
        const auto parsed = parse_address(address);
        if (!parsed) return std::unexpected(parsed.error());
        return verbs::VerbsListener::create(engine_, *parsed, handler);
    }

    std::expected<std::unique_ptr<Endpoint>, std::error_code> connect(
        ProtectionDomain& domain, const std::string& source, const std::string& destination,
        Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) override;

  private:
    std::shared_ptr<verbs::Engine> engine_;
};

std::expected<std::unique_ptr<Endpoint>, std::error_code> VerbsFabric::connect(
    ProtectionDomain& domain, const std::string& source, const std::string& destination,
    Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) {
    const auto route = parse_route(source, destination);
    if (!route) return std::unexpected(route.error());
    if (private_data.size() > private_data_request_max) {
        return std::unexpected(from_errno(EMSGSIZE));
    }
    auto endpoint = verbs::VerbsEndpoint::create(
        {engine_, static_cast<verbs::VerbsDomain&>(domain), options, handler});
    if (!endpoint) return std::unexpected(endpoint.error());
    (*endpoint)->dial(route->source ? &*route->source : nullptr, route->destination, private_data);
    return std::unique_ptr<Endpoint>(std::move(*endpoint));
}

}  // namespace

std::expected<std::unique_ptr<Fabric>, std::error_code> make_verbs_fabric(
    Reactor& reactor, const VerbsFabricOptions& options) {
    auto engine = verbs::Engine::create(reactor, options);
    if (!engine) return std::unexpected(engine.error());
    return std::make_unique<VerbsFabric>(std::move(*engine));
}

}  // namespace rtrs
