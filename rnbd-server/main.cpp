// rnbd-server: exports of files and block devices to RTRS sessions.

#include <nlohmann/json.hpp>

#include "daemon/attributes/commands.h"
#include "daemon/control/statistics.h"
#include "daemon/counted.h"
#include "daemon/log/log.h"
#include "daemon/run_daemon.h"
#include "rnbd-server/attributes.h"
#include "rnbd-server/config.h"
#include "rnbd-server/configuration.h"
#include "rnbd-server/export_commands.h"
#include "rnbd-server/listeners.h"
#include "rnbd-server/metrics.h"
#include "rnbd-server/state/epoch_file.h"
#include "rnbd-server/state/state_file.h"
#include "rnbd-server/state/writer_file.h"
#include "rnbd-server/status.h"
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
            .kernel_heartbeat_timeout = config.kernel_heartbeat_timeout,
            .messages = rtrs::MessageOptions{}};
}

// How long requests may take when the server ends, and after them the last flushes: what other
// processes have not answered by then is given up. Both together are less than the timeout of the
// unit file, and each is more than a busy disk takes for a flush.
constexpr rtrs::Duration stop_time = std::chrono::seconds(20);

// The system has no fitting words for a file that is not what it should be.
std::string in_words(std::error_code error, const char* damaged) {
    return error == std::errc::bad_message ? damaged : error.message();
}

EpochFile& opened(EpochFile& epochs) {
    if (const auto error = epochs.load()) {
        logger("rnbd.server")
            .warn("{}: {}; clients take this start for one after a crash", epochs.path(),
                  in_words(error, "it was damaged, and is replaced"));
    }
    return epochs;
}

WriterFile& opened(WriterFile& writers) {
    if (const auto error = writers.load()) {
        logger("rnbd.server")
            .warn("{}: {}; a client that was away while another one wrote may be let in again",
                  writers.path(), in_words(error, "it was damaged, and its whole lines count"));
    }
    return writers;
}

rtrs::TcpFabricOptions tcp_options(const ServerConfig& config, rtrs::Tracer& tracer) {
    using Options = rtrs::TcpFabricOptions;
    Options options;
    options.tracer = &tracer;
    options.data_checksum =
        config.data_checksum ? Options::DataChecksum::on : Options::DataChecksum::off;
    options.zero_copy = config.zero_copy_sends ? Options::ZeroCopy::on : Options::ZeroCopy::off;
    return options;
}

// Without it direct I/O ends by interrupts, as ever.
void poll_storage(rtrs::Reactor& reactor) {
    if (reactor.members() > 1) {
        logger("rnbd.server").warn("polled_io: not with several workers");
    } else if (const std::error_code error = reactor.prepare_polling()) {
        logger("rnbd.server").warn("polled_io: io_uring makes no ring for it: {}", error.message());
    }
}

// The daemon from its first listener to its last flush.
class Daemon final : public DaemonWork {
  public:
    Daemon(const DaemonContext& context, const ServerConfig& config)
        : config_(config),
          random_(rtrs::Random::from_entropy()),
          tcp_(rtrs::make_tcp_fabric(context.reactor, tcp_options(config, tracer_))),
          rdma_(rtrs::rdma_fabrics(context.reactor, tracer_)),
          epochs_(context.reactor, state_file_path("server.epochs")),
          writers_(context.reactor, state_file_path("server.writers")),
          target_(context.reactor, opened(epochs_), opened(writers_),
                  config.read_portions ? Target::Reads::in_portions : Target::Reads::at_once),
          server_({context.reactor, random_, tracer_}, options_of(config), target_),
          attributes_(server_, target_),
          state_{context.reactor, server_, target_, context.reactor.now(), {}, {},
                 context.shortage},
          statistics_(context.reactor, "rnbd-server", [this] { return server_statistics(state_); }),
          listeners_({.reactor = context.reactor,
                      .server = server_,
                      .target = target_,
                      .tcp = *tcp_,
                      .rdma = rdma_,
                      .always_invalidate = config.always_invalidate,
                      .shown = state_.listening}),
          configuration_(context.reactor, context.config_path, config, target_, listeners_,
                         context.use_log_level),
          stop_timer_(context.reactor, this,
                      [](void* self) { static_cast<Daemon*>(self)->target_.give_up(); }) {
        context.reactor.set_prompt_storage(config.prompt_storage);
        if (config.polled_io) poll_storage(context.reactor);
    }

    static rtrs::Reactor::Options reactor_options(const ServerConfig& config) {
        rtrs::Reactor::Options options;
        // Without slots nothing is registered, and everything goes the ordinary way.
        if (!config.registered_io) options.fixed_buffers = options.fixed_files = 0;
        return options;
    }
    std::expected<void, std::string> start(ControlServer& control) override;
    std::string status() const override;
    ConfigSubject& configuration() noexcept override { return configuration_; }
    void stop(std::function<void()> done) override;
    void metrics(MetricsText& text) override { add_server_metrics(text, state_); }

  private:
    void add_commands(ControlServer& control);
    void wait_at_most(rtrs::Duration time) { stop_timer_.arm(state_.reactor.now() + time); }
    void flushed();

    const ServerConfig& config_;
    rtrs::Random random_;
    LogTracer tracer_;
    std::unique_ptr<rtrs::Fabric> tcp_;
    rtrs::RdmaDevices rdma_;
    EpochFile epochs_;
    WriterFile writers_;
    Target target_;
    rtrs::Server server_;
    ServerAttributes attributes_;
    ServerState state_;
    Statistics statistics_;
    Listeners listeners_;
    ServerConfiguration configuration_;
    rtrs::Timer stop_timer_;
    std::function<void()> stopped_;
};

std::expected<void, std::string> Daemon::start(ControlServer& control) {
    add_commands(control);
    if (const auto opened = listeners_.open_all(config_.listen); !opened) {
        return std::unexpected(opened.error().text);
    }
    // Not before: a server that does not come into its place leaves files as they are.
    target_.open_exports(config_.exports);
    // Nobody who has come in is served before the loop runs; and nothing that can be foreseen keeps
    // it from running now.
    if (const auto error = epochs_.begin()) {
        return std::unexpected(epochs_.path() + ": " + error.message() +
                               "; expected to note there that the exports are in use");
    }
    return {};
}

std::string Daemon::status() const {
    return "serving " + counted(target_.volumes().size(), "export");
}

void Daemon::add_commands(ControlServer& control) {
    control.add_command("status",
                        [this](ControlReply reply) { reply.succeed(server_status(state_)); });
    control.add_command("list",
                        [this](ControlReply reply) { reply.succeed(server_exports(state_, "")); });
    statistics_.add_commands(control);
    add_export_commands(control, target_, state_);
    add_attribute_commands(control, attributes_.tree());
}

// Operations end and are answered, sessions close, volumes are flushed.
void Daemon::stop(std::function<void()> done) {
    stopped_ = std::move(done);
    state_.stopping = state_.reactor.now();
    listeners_.end();
    target_.end_opens();
    target_.when_closed([this] {
        wait_at_most(stop_time);
        target_.flush_all([this] { flushed(); });
    });
    wait_at_most(stop_time);
    target_.catalog().end([this] { server_.close(); });
}

void Daemon::flushed() {
    stop_timer_.disarm();
    if (const auto error = epochs_.save()) {
        logger("rnbd.server")
            .warn("{}: {}; if the machine is restarted now, clients take it for a crash",
                  epochs_.path(), error.message());
    }
    if (const auto error = writers_.save()) {
        logger("rnbd.server")
            .warn(
                "{}: {}; the next server may let in a client that was away while another one "
                "wrote",
                writers_.path(), error.message());
    }
    stopped_();
}

}  // namespace
}  // namespace rnbd

int main(int argc, char** argv) {
    using namespace rnbd;
    return run_daemon<ServerConfig, Daemon>(
        {.description = {.name = "rnbd-server",
                         .purpose = "Exports files and block devices to RTRS sessions.",
                         .config_path = "/etc/rnbd/server.yaml"},
         .log = "rnbd.server",
         .log_areas = {"rnbd.server", "rnbd.session", "rnbd.volume", "rtrs.fabric.tcp",
                       "rtrs.fabric.verbs", "rtrs.path", "rtrs.server"}},
        argc, argv);
}
