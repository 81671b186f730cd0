// rnbd-client: remote volumes as NBD devices.

#include <algorithm>
#include <filesystem>

#include "daemon/control/statistics.h"
#include "daemon/counted.h"
#include "daemon/log/log.h"
#include "daemon/run_daemon.h"
#include "rnbd-client/attributes.h"
#include "rnbd-client/client.h"
#include "rnbd-client/commands.h"
#include "rnbd-client/config.h"
#include "rnbd-client/configuration.h"
#include "rnbd-client/metrics.h"
#include "rnbd-client/status.h"
#include "rtrs/fabrics.h"
#include "rtrs/reactor.h"

namespace rnbd {
namespace {

// With as many requests in flight polling still lets them come sooner; with more there is nearly
// always one that has come, and who sends and who answers them need the processors more.
constexpr std::uint32_t polled_requests_max = 8;

std::unique_ptr<rtrs::Fabric> tcp(rtrs::Reactor& reactor, rtrs::Tracer& tracer,
                                  rtrs::TcpFabricOptions::DataChecksum checksum) {
    return rtrs::make_tcp_fabric(reactor, {.data_checksum = checksum, .tracer = &tracer});
}

// The daemon from its first session to its last flush.
class Daemon final : public DaemonWork {
  public:
    Daemon(const DaemonContext& context, const ClientConfig& config)
        : config_(config),
          random_(rtrs::Random::from_entropy()),
          tcp_(tcp(context.reactor, tracer_, rtrs::TcpFabricOptions::DataChecksum::on)),
          tcp_unchecked_(tcp(context.reactor, tracer_, rtrs::TcpFabricOptions::DataChecksum::off)),
          rdma_(rtrs::rdma_fabrics(context.reactor, tracer_)),
          writers_(config.control + ".writers"),
          client_(context.reactor, random_, tracer_,
                  {.tcp = *tcp_, .tcp_unchecked = *tcp_unchecked_, .rdma = rdma_}, writers_),
          state_{context.reactor, client_, context.reactor.now(), {}, context.shortage},
          statistics_(context.reactor, "rnbd-client", [this] { return client_statistics(state_); }),
          configuration_(context.config_path, config, client_, context.use_log_level) {}

    static rtrs::Reactor::Options reactor_options(const ClientConfig&) { return {}; }
    std::expected<void, std::string> start(ControlServer& control) override;
    std::string status() const override;
    ConfigSubject& configuration() noexcept override { return configuration_; }
    void listen_again() override { client_.listen_again(); }
    void remove_files() noexcept override { client_.remove_files(); }
    void stop(std::function<void()> done) override;
    void metrics(MetricsText& text) override { add_client_metrics(text, state_); }

  private:
    const ClientConfig& config_;
    rtrs::Random random_;
    LogTracer tracer_;
    std::unique_ptr<rtrs::Fabric> tcp_;
    std::unique_ptr<rtrs::Fabric> tcp_unchecked_;
    rtrs::RdmaDevices rdma_;
    WriterNumbers writers_;
    Client client_;
    ClientState state_;
    Statistics statistics_;
    ClientConfiguration configuration_;
    std::unique_ptr<ClientAttributes> attributes_;
};

std::expected<void, std::string> Daemon::start(ControlServer& control) {
    const std::string folder = std::filesystem::path(config_.control).parent_path().string();
    add_client_commands(control, client_, state_, folder);
    attributes_ = std::make_unique<ClientAttributes>(client_, folder);
    add_attribute_commands(control, attributes_->tree());
    statistics_.add_commands(control);
    if (const auto error = writers_.load()) {
        logger("rnbd.client")
            .warn(
                "{}: {}; if a former life was killed, and another machine has written to a "
                "volume since, servers do not recognise what was held here as old",
                writers_.path(), error.message());
    }
    if (!state_.shortage.io_flusher && std::ranges::any_of(config_.devices, [](const auto& one) {
            return one.kernel.has_value();
        })) {
        logger("rnbd.kernel")
            .warn(
                "this process has no CAP_SYS_RESOURCE: when this machine is short of memory, what "
                "is written to its block devices may wait for itself");
    }
    return client_.start(config_);
}

std::string Daemon::status() const {
    return "mapping " + counted(client_.mappings().size(), "device");
}

// Connections end after what they had asked for is answered; volumes are flushed and closed; then
// sessions.
void Daemon::stop(std::function<void()> done) {
    state_.stopping = state_.reactor.now();
    client_.stop(std::move(done));
}

}  // namespace
}  // namespace rnbd

int main(int argc, char** argv) {
    using namespace rnbd;
    return run_daemon<ClientConfig, Daemon>(
        {.description = {.name = "rnbd-client",
                         .purpose = "Maps volumes of rnbd-server as NBD devices.",
                         .config_path = "/etc/rnbd/client.yaml"},
         .log = "rnbd.client",
         .log_areas = {"rnbd.client", "rnbd.device", "rnbd.kernel", "rnbd.nbd", "rnbd.volume",
                       "rtrs.fabric.tcp", "rtrs.fabric.verbs", "rtrs.path", "rtrs.session"},
         .lock_memory = LockMemory::yes,
         .polls_for = {.max = polled_requests_max}},
        argc, argv);
}
