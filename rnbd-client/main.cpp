// rnbd-client: remote volumes as NBD devices.

#include <filesystem>
#include <optional>

#include "daemon/log.h"
#include "daemon/rdma_devices.h"
#include "daemon/run_daemon.h"
#include "daemon/statistics.h"
#include "rnbd-client/attributes.h"
#include "rnbd-client/client.h"
#include "rnbd-client/commands.h"
#include "rnbd-client/config.h"
#include "rnbd-client/status.h"
#include "rtrs/fabrics.h"
#include "rtrs/reactor.h"

namespace rnbd {
namespace {

std::unique_ptr<rtrs::Fabric> tcp(rtrs::Reactor& reactor,
                                  rtrs::TcpFabricOptions::DataChecksum checksum) {
    return rtrs::make_tcp_fabric(reactor, {.data_checksum = checksum});
}

RdmaDevices::Make rdma_maker([[maybe_unused]] rtrs::Reactor& reactor,
                             [[maybe_unused]] rtrs::Tracer& tracer) {
#ifdef RTRS_VERBS
    return [&reactor, &tracer](std::string host) {
        return rtrs::make_verbs_fabric(reactor, {.local_host = std::move(host), .tracer = &tracer});
    };
#else
    return {};
#endif
}

// The daemon from its first session to its last flush.
class Daemon final : public DaemonWork {
  public:
    Daemon(rtrs::Reactor& reactor, const ClientConfig& config)
        : config_(config),
          random_(rtrs::Random::from_entropy()),
          tcp_(tcp(reactor, rtrs::TcpFabricOptions::DataChecksum::on)),
          tcp_unchecked_(tcp(reactor, rtrs::TcpFabricOptions::DataChecksum::off)),
          rdma_(rdma_maker(reactor, tracer_)),
          client_(reactor, random_, tracer_,
                  {.tcp = *tcp_, .tcp_unchecked = *tcp_unchecked_, .rdma = rdma_}),
          state_{reactor, client_, reactor.now(), false},
          statistics_(reactor, "rnbd-client", [this] { return client_statistics(state_); }) {}

    std::expected<std::string, std::string> start(ControlServer& control) override;
    void stop(std::function<void()> done) override;

  private:
    const ClientConfig& config_;
    rtrs::Random random_;
    LogTracer tracer_;
    std::unique_ptr<rtrs::Fabric> tcp_;
    std::unique_ptr<rtrs::Fabric> tcp_unchecked_;
    RdmaDevices rdma_;
    Client client_;
    ClientState state_;
    Statistics statistics_;
    std::unique_ptr<ClientAttributes> attributes_;
};

std::expected<std::string, std::string> Daemon::start(ControlServer& control) {
    const std::string folder = std::filesystem::path(config_.control).parent_path().string();
    add_client_commands(control, client_, state_, folder);
    attributes_ = std::make_unique<ClientAttributes>(client_, folder);
    add_attribute_commands(control, attributes_->tree());
    statistics_.add_commands(control);
    if (const auto started = client_.start(config_); !started) {
        return std::unexpected(started.error());
    }
    return "mapping " + std::to_string(config_.devices.size()) + " devices";
}

// Connections end after what they had asked for is answered; volumes are flushed and closed; then
// sessions.
void Daemon::stop(std::function<void()> done) {
    state_.stopping = true;
    client_.stop(std::move(done));
}

}  // namespace
}  // namespace rnbd

int main(int argc, char** argv) {
    using namespace rnbd;
    std::optional<ClientConfig> config;
    return run_daemon(
        {.description = {.name = "rnbd-client",
                         .purpose = "Maps volumes of rnbd-server as NBD devices.",
                         .config_path = "/etc/rnbd/client.yaml"},
         .log = "rnbd.client",
         .load = [&](const std::string& path)
             -> std::expected<DaemonSettings, std::vector<ConfigError>> {
             auto loaded = ClientConfig::load(path);
             if (!loaded) return std::unexpected(std::move(loaded.error()));
             config = std::move(*loaded);
             return DaemonSettings{config->control, config->log_level};
         },
         .make =
             [&](rtrs::Reactor& reactor) { return std::make_unique<Daemon>(reactor, *config); }},
        argc, argv);
}
