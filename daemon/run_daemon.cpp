#include "daemon/run_daemon.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "daemon/lifecycle.h"
#include "daemon/log.h"
#include "daemon/log_commands.h"
#include "daemon/metrics_server.h"
#include "daemon/version.h"
#include "daemon/watchdog.h"

namespace rnbd {
namespace {

// The work and what is around it, from the first signal that could come to the last answer.
class Frame {
  public:
    Frame(const DaemonContext& context, const DaemonProgram& program, DaemonSettings settings)
        : reactor_(context.reactor),
          program_(program),
          settings_(std::move(settings)),
          log_(logger(program.log)),
          started_(context.reactor.now()),
          watchdog_(context.reactor),
          work_(program.make(context)),
          config_(reactor_, work_->configuration(), program.description.name, log_, [this] {
              if (!stopping_) notify_status(work_->status());
          }) {}

    // The error is a sentence.
    std::expected<void, std::string> start();

  private:
    void stop(int signal);
    void reload();
    void closed();
    std::expected<void, std::string> serve_metrics();
    std::string metrics();

    rtrs::Reactor& reactor_;
    const DaemonProgram& program_;
    const DaemonSettings settings_;
    spdlog::logger& log_;
    const rtrs::Instant started_;
    Watchdog watchdog_;
    std::unique_ptr<DaemonWork> work_;
    ConfigControl config_;
    std::unique_ptr<ControlServer> control_;
    std::unique_ptr<MetricsServer> metrics_;
    std::unique_ptr<Signals> signals_;
    bool stopping_ = false;
};

std::expected<void, std::string> Frame::start() {
    auto signals =
        Signals::create(reactor_, [this](int signal) { stop(signal); }, [this] { reload(); });
    if (!signals) {
        return std::unexpected("cannot receive signals: " + signals.error().message());
    }
    signals_ = std::move(*signals);
    auto control = ControlServer::create(reactor_, {.socket_path = settings_.control});
    if (!control) {
        return std::unexpected("control socket " + settings_.control + ": " +
                               control.error().message());
    }
    control_ = std::move(*control);
    control_->add_command(
        "version", [name = program_.description.name](const nlohmann::json&, ControlReply reply) {
            reply.succeed({{"daemon", name}, {"version", version()}});
        });
    add_log_command(*control_, program_.description.name);
    if (const auto served = serve_metrics(); !served) return served;
    if (const auto started = work_->start(*control_); !started) return started;
    config_.add_commands(*control_);
    notify_ready(work_->status());
    watchdog_.start();
    return {};
}

void Frame::stop(int signal) {
    log_.info("stopping on signal {}", signal);
    notify_stopping("finishing what is in flight");
    stopping_ = true;
    config_.stop();
    work_->stop([this] { closed(); });
}

void Frame::reload() {
    log_.info("reading the configuration again");
    notify_reloading("reading the configuration again");
    config_.reload([this] {
        if (!stopping_) notify_ready(work_->status());
    });
}

void Frame::closed() {
    if (metrics_) {
        return metrics_->close([this] {
            metrics_.reset();
            closed();
        });
    }
    control_->close([this] {
        log_.info("stopped");
        reactor_.stop();
    });
}

std::expected<void, std::string> Frame::serve_metrics() {
    if (settings_.metrics.empty()) return {};
    auto made = MetricsServer::create(reactor_, {.listen = settings_.metrics},
                                      [this] { return metrics(); });
    if (!made) {
        return std::unexpected("metrics at " + settings_.metrics + ": " + made.error().message());
    }
    metrics_ = std::move(*made);
    log_.info("metrics at {}", metrics_->address());
    return {};
}

std::string Frame::metrics() {
    MetricsText text;
    text.family({"rnbd_build", "", MetricType::info, {"daemon", "version"}, "What is running."});
    text.sample({program_.description.name, version()}, std::uint64_t{1});
    text.family({"rnbd_uptime", "seconds", MetricType::gauge, {}, "Time since it was started."});
    text.sample({}, std::chrono::duration<double>(reactor_.now() - started_).count());
    text.family({"rnbd_reactor_turns", "", MetricType::counter, {}, "Turns of the daemon's loop."});
    text.sample({}, reactor_.statistics().turns);
    text.family({"rnbd_reactor_completions",
                 "",
                 MetricType::counter,
                 {},
                 "Completions that the loop took from io_uring."});
    text.sample({}, reactor_.statistics().completions);
    text.family({"rnbd_reactor_looks",
                 "",
                 MetricType::counter,
                 {"result"},
                 "With busy_poll: looks for news instead of sleeping."});
    text.sample({"found"}, reactor_.statistics().looks_found);
    text.sample({"fruitless"}, reactor_.statistics().looks_fruitless);
    work_->metrics(text);
    return text.finish();
}

// Before there is memory that should be near.
bool use_cpus(const CpuList& wanted, spdlog::logger& log) {
    if (wanted.none()) return true;
    const auto used = run_on_cpus(wanted);
    if (!used) {
        const bool none = used.error() == std::errc::invalid_argument;
        log.critical("cpus: {}: {}", to_string(wanted),
                     none ? "none of these is there for this process" : used.error().message());
    } else if (*used != wanted) {
        log.warn("cpus: {}: of these there are only {}", to_string(wanted), to_string(*used));
    }
    return used.has_value();
}

int run(const DaemonProgram& program, const DaemonCommandLine& command_line) {
    auto settings = program.load(command_line.config_path);
    if (!settings) {
        print_config_errors(settings.error());
        return exit_code::config;
    }
    if (command_line.mode == DaemonCommandLine::Mode::check_config) return exit_code::ok;
    set_up_logging(command_line.log_level.value_or(settings->log_level));
    prepare_process();
    if (!use_cpus(settings->cpus, logger(program.log))) return exit_code::failed;
    const auto reactor = rtrs::Reactor::create();
    if (!reactor) {
        logger(program.log).critical("cannot set up io_uring: {}", reactor.error().message());
        return exit_code::failed;
    }
    (*reactor)->set_busy_poll(settings->busy_poll);
    const auto use_log_level = [&](LogLevel level) {
        if (!command_line.log_level) set_log_level(level);
    };
    const auto frame =
        std::make_unique<Frame>(DaemonContext{**reactor, command_line.config_path, use_log_level},
                                program, std::move(*settings));
    if (const auto started = frame->start(); !started) {
        logger(program.log).critical("{}", started.error());
        // Nothing was served yet: there is nothing to finish.
        std::fflush(nullptr);
        std::_Exit(exit_code::failed);
    }
    (*reactor)->run();
    return exit_code::ok;
}

}  // namespace

int run_daemon(const DaemonProgram& program, int argc, const char* const* argv) {
    const auto command_line = parse_command_line(program.description, argc, argv);
    if (!command_line) return command_line.error();
    return run(program, *command_line);
}

}  // namespace rnbd
