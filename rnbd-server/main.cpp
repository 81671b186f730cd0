// rnbd-server: exports of files and block devices to RTRS sessions.

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "daemon/command_line.h"
#include "daemon/control_server.h"
#include "daemon/lifecycle.h"
#include "daemon/log.h"
#include "daemon/version.h"
#include "rnbd-server/config.h"
#include "rnbd-server/status.h"
#include "rnbd-server/storage/epoch_book.h"
#include "rnbd-server/target.h"
#include "rtrs/fabrics.h"
#include "rtrs/reactor.h"
#include "rtrs/server.h"

namespace rnbd {
namespace {

int fail(std::string_view what, std::error_code error) {
    logger("rnbd.server").critical("{}: {}", what, error.message());
    return exit_code::failed;
}

rtrs::ServerOptions options_of(const ServerConfig& config) {
    return {.queue_depth = config.queue_depth,
            .chunk_bytes = config.chunk_bytes(),
            .header_bytes = rtrs::limits::header_bytes_default,
            .always_invalidate = config.always_invalidate,
            .heartbeat_interval = config.heartbeat_interval,
            .heartbeat_timeout = config.heartbeat_timeout};
}

// systemd names the folder that StateDirectory= asks for.
std::string epochs_path() {
    const char* const folder = std::getenv("STATE_DIRECTORY");
    if (folder == nullptr || *folder != '/') return "";
    const std::string_view folders(folder);
    return std::string(folders.substr(0, folders.find(':'))) + "/server.epochs";
}

EpochBook& opened(EpochBook& epochs) {
    if (const auto error = epochs.load()) {
        logger("rnbd.server")
            .warn("{}: {}; clients take this start for one after a crash", epochs.path(),
                  error.message());
    }
    return epochs;
}

// The daemon from its first listener to its last flush.
class Daemon {
  public:
    Daemon(rtrs::Reactor& reactor, const ServerConfig& config)
        : reactor_(reactor),
          config_(config),
          random_(rtrs::Random::from_entropy()),
          fabric_(rtrs::make_tcp_fabric(
              reactor,
              {.data_checksum = config.data_checksum ? rtrs::TcpFabricOptions::DataChecksum::on
                                                     : rtrs::TcpFabricOptions::DataChecksum::off})),
          epochs_(epochs_path()),
          target_(reactor, config.exports, opened(epochs_)),
          server_({reactor, random_, tracer_}, options_of(config), target_),
          state_{reactor, server_, target_, reactor.now(), {}, false} {}

    int start();

  private:
    void add_commands();
    void stop(int signal);
    void flushed();
    void closed();

    rtrs::Reactor& reactor_;
    const ServerConfig& config_;
    rtrs::Random random_;
    LogTracer tracer_;
    std::unique_ptr<rtrs::Fabric> fabric_;
    EpochBook epochs_;
    Target target_;
    rtrs::Server server_;
    ServerState state_;
    std::unique_ptr<ControlServer> control_;
    std::unique_ptr<StopSignals> signals_;
};

int Daemon::start() {
    auto signals = StopSignals::create(reactor_, [this](int signal) { stop(signal); });
    if (!signals) return fail("cannot receive signals", signals.error());
    signals_ = std::move(*signals);
    auto control = ControlServer::create(reactor_, {.socket_path = config_.control});
    if (!control) return fail("control socket " + config_.control, control.error());
    control_ = std::move(*control);
    add_commands();
    for (const auto& listen : config_.listen) {
        const auto address = server_.listen(*fabric_, listen.address);
        if (!address) return fail("cannot listen on tcp " + listen.address, address.error());
        logger("rnbd.server").info("listening on tcp {}", *address);
        state_.addresses.push_back(*address);
    }
    notify_ready("serving " + std::to_string(target_.volumes().size()) + " exports");
    return exit_code::ok;
}

void Daemon::add_commands() {
    control_->add_command("status", [this](const nlohmann::json&, ControlReply reply) {
        reply.succeed(server_status(state_));
    });
    control_->add_command("list", [this](const nlohmann::json&, ControlReply reply) {
        reply.succeed(server_list(state_));
    });
    control_->add_command("version", [](const nlohmann::json&, ControlReply reply) {
        reply.succeed({{"daemon", "rnbd-server"}, {"version", version()}});
    });
}

// Operations end and are answered, sessions close, volumes are flushed, the control socket goes.
void Daemon::stop(int signal) {
    logger("rnbd.server").info("stopping on signal {}", signal);
    notify_stopping("finishing what is in flight");
    state_.stopping = true;
    target_.when_closed([this] { target_.flush_all([this] { flushed(); }); });
    server_.close();
}

void Daemon::flushed() {
    if (const auto error = epochs_.save()) {
        logger("rnbd.server")
            .warn("{}: {}; if the machine is restarted now, clients take it for a crash",
                  epochs_.path(), error.message());
    }
    closed();
}

void Daemon::closed() {
    control_->close([this] {
        logger("rnbd.server").info("stopped");
        reactor_.stop();
    });
}

int run(const DaemonCommandLine& command_line) {
    auto config = ServerConfig::load(command_line.config_path);
    if (!config) {
        print_config_errors(config.error());
        return exit_code::config;
    }
    if (command_line.mode == DaemonCommandLine::Mode::check_config) return exit_code::ok;
    set_up_logging(command_line.log_level.value_or(config->log_level));
    prepare_process();
    auto reactor = rtrs::Reactor::create();
    if (!reactor) return fail("cannot set up io_uring", reactor.error());
    auto daemon = std::make_unique<Daemon>(**reactor, *config);
    if (const int status = daemon->start(); status != exit_code::ok) {
        // Nothing was served yet: there is nothing to finish.
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
        rnbd::parse_command_line({.name = "rnbd-server",
                                  .purpose = "Exports files and block devices to RTRS sessions.",
                                  .config_path = "/etc/rnbd/server.yaml"},
                                 argc, argv);
    if (!command_line) return command_line.error();
    return rnbd::run(*command_line);
}
