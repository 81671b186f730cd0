// rnbd-client: remote volumes as NBD devices.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "daemon/command_line.h"
#include "daemon/control_server.h"
#include "daemon/lifecycle.h"
#include "daemon/log.h"
#include "daemon/rdma_devices.h"
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
class Daemon {
  public:
    Daemon(rtrs::Reactor& reactor, const ClientConfig& config)
        : reactor_(reactor),
          config_(config),
          random_(rtrs::Random::from_entropy()),
          tcp_(tcp(reactor, rtrs::TcpFabricOptions::DataChecksum::on)),
          tcp_unchecked_(tcp(reactor, rtrs::TcpFabricOptions::DataChecksum::off)),
          rdma_(rdma_maker(reactor, tracer_)),
          client_(reactor, random_, tracer_,
                  {.tcp = *tcp_, .tcp_unchecked = *tcp_unchecked_, .rdma = rdma_}),
          state_{reactor, client_, reactor.now(), false},
          statistics_(reactor, "rnbd-client", [this] { return client_statistics(state_); }) {}

    int start();

  private:
    void stop(int signal);

    rtrs::Reactor& reactor_;
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
    std::unique_ptr<ControlServer> control_;
    std::unique_ptr<StopSignals> signals_;
};

int Daemon::start() {
    auto& log = logger("rnbd.client");
    auto signals = StopSignals::create(reactor_, [this](int signal) { stop(signal); });
    if (!signals) {
        log.critical("cannot receive signals: {}", signals.error().message());
        return exit_code::failed;
    }
    signals_ = std::move(*signals);
    auto control = ControlServer::create(reactor_, {.socket_path = config_.control});
    if (!control) {
        log.critical("control socket {}: {}", config_.control, control.error().message());
        return exit_code::failed;
    }
    control_ = std::move(*control);
    const std::string folder = std::filesystem::path(config_.control).parent_path().string();
    add_client_commands(*control_, client_, state_, folder);
    attributes_ = std::make_unique<ClientAttributes>(client_, folder);
    add_attribute_commands(*control_, attributes_->tree());
    statistics_.add_commands(*control_);
    if (const auto started = client_.start(config_); !started) {
        log.critical("{}", started.error());
        return exit_code::failed;
    }
    notify_ready("mapping " + std::to_string(config_.devices.size()) + " devices");
    return exit_code::ok;
}

// Connections end after what they had asked for is answered; volumes are flushed and closed; then
// sessions and the control socket.
void Daemon::stop(int signal) {
    logger("rnbd.client").info("stopping on signal {}", signal);
    notify_stopping("finishing what is in flight");
    state_.stopping = true;
    client_.stop([this] {
        control_->close([this] {
            logger("rnbd.client").info("stopped");
            reactor_.stop();
        });
    });
}

int run(const DaemonCommandLine& command_line) {
    auto config = ClientConfig::load(command_line.config_path);
    if (!config) {
        print_config_errors(config.error());
        return exit_code::config;
    }
    if (command_line.mode == DaemonCommandLine::Mode::check_config) return exit_code::ok;
    set_up_logging(command_line.log_level.value_or(config->log_level));
    prepare_process();
    auto reactor = rtrs::Reactor::create();
    if (!reactor) {
        logger("rnbd.client").critical("cannot set up io_uring: {}", reactor.error().message());
        return exit_code::failed;
    }
    auto daemon = std::make_unique<Daemon>(**reactor, *config);
    if (const int status = daemon->start(); status != exit_code::ok) {
        // Nothing was mapped yet: there is nothing to finish.
        std::fflush(nullptr);
        std::_Exit(status);
    }
    (*reactor)->run();
    return exit_code::ok;
}

}  // namespace
}  // namespace rnbd

int main(int argc, char** argv) {
    const auto command_line =
        rnbd::parse_command_line({.name = "rnbd-client",
                                  .purpose = "Maps volumes of rnbd-server as NBD devices.",
                                  .config_path = "/etc/rnbd/client.yaml"},
                                 argc, argv);
    if (!command_line) return command_line.error();
    return rnbd::run(*command_line);
}
