// rnbd-server: exports of files and block devices to RTRS sessions.

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "daemon/attribute_commands.h"
#include "daemon/in_use.h"
#include "daemon/log.h"
#include "daemon/rdma_devices.h"
#include "daemon/run_daemon.h"
#include "daemon/statistics.h"
#include "rnbd-server/attributes.h"
#include "rnbd-server/config.h"
#include "rnbd-server/export_commands.h"
#include "rnbd-server/status.h"
#include "rnbd-server/storage/epoch_book.h"
#include "rnbd-server/target.h"
#include "rtrs/fabrics.h"
#include "rtrs/reactor.h"
#include "rtrs/server.h"

namespace rnbd {
namespace {

rtrs::ServerOptions options_of(const ServerConfig& config) {
    return {.queue_depth = config.queue_depth,
            .chunk_bytes = config.chunk_bytes(),
            .header_bytes = rtrs::limits::header_bytes_default,
            .always_invalidate = config.always_invalidate != AlwaysInvalidate::off,
            .heartbeat_interval = config.heartbeat_interval,
            .heartbeat_timeout = config.heartbeat_timeout,
            .messages = rtrs::MessageOptions{}};
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

std::string host_of(const std::string& address) {
    std::string host = address.substr(0, address.rfind(':'));
    return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

std::map<std::uint32_t, KernelListener> kernel_doors(const ServerConfig& config) {
    std::map<std::uint32_t, KernelListener> doors;
    for (std::uint32_t i = 0; i < config.listen.size(); ++i) {
        if (config.listen[i].kernel) doors.emplace(i, *config.listen[i].kernel);
    }
    return doors;
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
class Daemon final : public DaemonWork {
  public:
    Daemon(rtrs::Reactor& reactor, const ServerConfig& config)
        : reactor_(reactor),
          config_(config),
          random_(rtrs::Random::from_entropy()),
          tcp_(rtrs::make_tcp_fabric(
              reactor,
              {.data_checksum = config.data_checksum ? rtrs::TcpFabricOptions::DataChecksum::on
                                                     : rtrs::TcpFabricOptions::DataChecksum::off})),
          rdma_(rdma_maker(reactor, tracer_)),
          epochs_(epochs_path()),
          target_(reactor, config.exports, opened(epochs_)),
          server_({reactor, random_, tracer_}, options_of(config), target_),
          attributes_(server_, target_),
          state_{reactor, server_, target_, reactor.now(), {}, false},
          statistics_(reactor, "rnbd-server", [this] { return server_statistics(state_); }) {
        target_.use_kernel_doors(kernel_doors(config));
    }

    std::expected<std::string, std::string> start(ControlServer& control) override;
    void stop(std::function<void()> done) override;

  private:
    std::expected<void, std::string> listen(const ServerConfig::Listen& listen, std::uint32_t door);
    std::expected<rtrs::DoorOptions::Invalidate, std::string> invalidation(rtrs::Fabric& fabric);
    void add_commands(ControlServer& control);
    void flushed();

    rtrs::Reactor& reactor_;
    const ServerConfig& config_;
    rtrs::Random random_;
    LogTracer tracer_;
    std::unique_ptr<rtrs::Fabric> tcp_;
    RdmaDevices rdma_;
    EpochBook epochs_;
    Target target_;
    rtrs::Server server_;
    ServerAttributes attributes_;
    ServerState state_;
    Statistics statistics_;
    std::function<void()> stopped_;
};

std::expected<std::string, std::string> Daemon::start(ControlServer& control) {
    add_commands(control);
    for (std::uint32_t door = 0; door < config_.listen.size(); ++door) {
        const auto& it = config_.listen[door];
        if (const auto done = listen(it, door); !done) {
            return std::unexpected(std::string("cannot listen on ") + to_word(it.fabric) + " " +
                                   it.address + ": " + done.error());
        }
    }
    return "serving " + std::to_string(target_.volumes().size()) + " exports";
}

std::expected<void, std::string> Daemon::listen(const ServerConfig::Listen& listen,
                                                std::uint32_t door) {
    using Clients = rtrs::DoorOptions::Clients;
    rtrs::DoorOptions options{.id = door};
    rtrs::Fabric* fabric = tcp_.get();
    if (listen.fabric == ConfigFabric::rdma) {
        const auto device = rdma_.at(host_of(listen.address));
        if (!device) return std::unexpected(device.error());
        fabric = *device;
        const auto invalidate = invalidation(*fabric);
        if (!invalidate) return std::unexpected(invalidate.error());
        options.invalidate = *invalidate;
        if (!listen.kernel) options.clients = Clients::extended;
    }
    const auto address = while_in_use(
        in_use_patience, [&] { return server_.listen(*fabric, listen.address, options); });
    if (!address) return std::unexpected(address.error().message());
    const char* const clients = listen.kernel                     ? "kernel"
                                : options.clients == Clients::any ? "any"
                                                                  : "extended";
    logger("rnbd.server")
        .info("listening on {} {}{}{}", to_word(listen.fabric), *address,
              fabric->device().empty() ? "" : " of " + fabric->device(),
              listen.kernel ? ", for kernel clients" : "");
    state_.listening.push_back({to_word(listen.fabric), fabric->device(), *address, clients});
    return {};
}

// Whether a request's key can be taken back on this device, and what is done if not.
std::expected<rtrs::DoorOptions::Invalidate, std::string> Daemon::invalidation(
    rtrs::Fabric& fabric) {
    using Invalidate = rtrs::DoorOptions::Invalidate;
    if (config_.always_invalidate == AlwaysInvalidate::off || windows_work(fabric)) {
        return Invalidate::as_server;
    }
    if (config_.always_invalidate == AlwaysInvalidate::if_possible) {
        logger("rnbd.server")
            .warn(
                "{} has no memory windows: always_invalidate is off there, and a client can "
                "write into its requests' memory at any time",
                fabric.device());
        return Invalidate::never;
    }
    return std::unexpected(fabric.device() +
                           " has no memory windows, which always_invalidate is made of; say "
                           "always_invalidate: if-possible, or false");
}

void Daemon::add_commands(ControlServer& control) {
    control.add_command("status", [this](const nlohmann::json&, ControlReply reply) {
        reply.succeed(server_status(state_));
    });
    control.add_command("list", [this](const nlohmann::json&, ControlReply reply) {
        reply.succeed(server_list(state_));
    });
    statistics_.add_commands(control);
    add_export_commands(control, target_, state_);
    add_attribute_commands(control, attributes_.tree());
}

// Operations end and are answered, sessions close, volumes are flushed.
void Daemon::stop(std::function<void()> done) {
    stopped_ = std::move(done);
    state_.stopping = true;
    target_.when_closed([this] { target_.flush_all([this] { flushed(); }); });
    target_.catalog().end([this] { server_.close(); });
}

void Daemon::flushed() {
    if (const auto error = epochs_.save()) {
        logger("rnbd.server")
            .warn("{}: {}; if the machine is restarted now, clients take it for a crash",
                  epochs_.path(), error.message());
    }
    stopped_();
}

}  // namespace
}  // namespace rnbd

int main(int argc, char** argv) {
    using namespace rnbd;
    std::optional<ServerConfig> config;
    return run_daemon(
        {.description = {.name = "rnbd-server",
                         .purpose = "Exports files and block devices to RTRS sessions.",
                         .config_path = "/etc/rnbd/server.yaml"},
         .log = "rnbd.server",
         .load = [&](const std::string& path)
             -> std::expected<DaemonSettings, std::vector<ConfigError>> {
             auto loaded = ServerConfig::load(path);
             if (!loaded) return std::unexpected(std::move(loaded.error()));
             config = std::move(*loaded);
             return DaemonSettings{config->control, config->log_level};
         },
         .make =
             [&](rtrs::Reactor& reactor) { return std::make_unique<Daemon>(reactor, *config); }},
        argc, argv);
}
