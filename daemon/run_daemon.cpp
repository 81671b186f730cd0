#include "daemon/run_daemon.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "daemon/control/log_commands.h"
#include "daemon/lifecycle.h"
#include "daemon/log/log.h"
#include "daemon/metrics/server.h"
#include "daemon/sockets/processes.h"
#include "daemon/sockets/unix_listener.h"
#include "daemon/version.h"
#include "daemon/watchdog.h"
#include "rtrs/base/member_call.h"
#include "rtrs/base/process_words.h"
#include "rtrs/base/seconds.h"
#include "rtrs/reactor_group.h"

namespace rnbd {
namespace {

constexpr rtrs::Duration metrics_retry = std::chrono::seconds(1);

// The work and what is around it, from the first signal that could come to the last answer.
class Frame {
  public:
    // control: made before the work, which uses what another daemon of this kind may have.
    Frame(const DaemonContext& context, const DaemonProgram& program, const DaemonTypes& types,
          DaemonSettings settings, std::unique_ptr<ControlServer> control)
        : reactor_(context.reactor),
          program_(program),
          settings_(std::move(settings)),
          log_(logger(program.log)),
          started_(context.reactor.now()),
          watchdog_(context.reactor),
          metrics_timer_(context.reactor, this, rtrs::member_call<&Frame::serve_metrics_late>),
          work_(types.make(context)),
          config_(reactor_, work_->configuration(), program.description.name, log_,
                  [this] {
                      if (!stopping_) notify_status(work_->status());
                  }),
          control_(std::move(control)) {}

    // The error is a sentence.
    std::expected<void, std::string> start();
    // After it failed.
    void remove_files() noexcept;
    // Nothing can keep the daemon from its work any more.
    void ready();

  private:
    void stop(int signal);
    void reload();
    void listen_again();
    void closed();
    std::expected<void, std::string> serve_metrics();
    // timeout: MetricsServerOptions::in_use_timeout.
    std::error_code try_metrics(rtrs::Duration timeout);
    void wait_for_metrics(std::error_code why);
    void serve_metrics_late();
    MetricsText metrics();

    rtrs::Reactor& reactor_;
    const DaemonProgram& program_;
    const DaemonSettings settings_;
    Logger& log_;
    const rtrs::Instant started_;
    Watchdog watchdog_;
    rtrs::Timer metrics_timer_;
    std::error_code metrics_wait_;  // why they are not served yet
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
    control_->add_command("version", [name = program_.description.name](ControlReply reply) {
        reply.succeed({{"daemon", name}, {"version", version()}});
    });
    add_log_command(*control_, program_.description.name);
    if (const auto served = serve_metrics(); !served) return served;
    if (const auto started = work_->start(*control_); !started) return started;
    config_.add_commands(*control_);
    return {};
}

void Frame::ready() {
    notify_ready(work_->status());
    watchdog_.start();
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
    listen_again();
    config_.reload([this] {
        if (!stopping_) notify_ready(work_->status());
    });
}

// Without the files nobody can connect, rnbdctl least of all: a signal always can come.
void Frame::listen_again() {
    const auto tell = [this](const std::string& socket,
                             const std::expected<bool, std::error_code>& again) {
        if (!again) {
            log_.error("{}: its file is gone: {}", socket, again.error().message());
        } else if (*again) {
            log_.warn("{}: its file was gone, and is made anew", socket);
        }
    };
    tell("control socket " + settings_.control, control_->listen_again());
    if (metrics_) tell("metrics at " + settings_.metrics, metrics_->listen_again());
    work_->listen_again();
}

void Frame::remove_files() noexcept {
    control_->remove_file();
    if (metrics_) metrics_->remove_file();
    work_->remove_files();
}

void Frame::closed() {
    metrics_timer_.disarm();
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
    const auto error = try_metrics(in_use_timeout);
    if (!error) return {};
    if (error == std::errc::address_not_available) {
        // The machine may have the address later. Nobody has to wait for their disks until then.
        wait_for_metrics(error);
        return {};
    }
    const bool no_socket = error == std::errc::file_exists;
    return std::unexpected(
        "metrics at " + settings_.metrics + ": " +
        (no_socket ? "found something that is no socket, expected nothing there, or a socket"
                   : error.message()));
}

std::error_code Frame::try_metrics(rtrs::Duration timeout) {
    auto made =
        MetricsServer::create(reactor_, {.listen = settings_.metrics, .in_use_timeout = timeout},
                              [this] { return metrics(); });
    if (!made) return made.error();
    metrics_ = std::move(*made);
    log_.info("metrics at {}", metrics_->address());
    return {};
}

void Frame::wait_for_metrics(std::error_code why) {
    if (std::exchange(metrics_wait_, why) != why) {
        log_.warn("metrics at {}: not yet: {}; tried again every second", settings_.metrics,
                  why.message());
    }
    metrics_timer_.arm(reactor_.now() + metrics_retry);
}

void Frame::serve_metrics_late() {
    if (const auto error = try_metrics(rtrs::Duration::zero())) wait_for_metrics(error);
}

MetricsText Frame::metrics() {
    MetricsText text;
    text.family({"rnbd_build", "", MetricType::info, {"daemon", "version"}, "What is running."});
    text.sample({program_.description.name, version()}, std::uint64_t{1});
    text.family({"rnbd_uptime", "seconds", MetricType::gauge, {}, "Time since it was started."});
    text.sample({}, rtrs::in_seconds(reactor_.now() - started_));
    const auto of_each_worker = [this](const auto& add) {
        for (std::uint32_t i = 0; i < reactor_.members(); ++i) {
            add(std::to_string(i), reactor_.member(i).statistics());
        }
    };
    text.family(
        {"rnbd_reactor_turns", "", MetricType::counter, {"worker"}, "Turns of a worker's loop."});
    of_each_worker(
        [&](const std::string& worker, const auto& did) { text.sample({worker}, did.turns); });
    text.family({"rnbd_reactor_completions",
                 "",
                 MetricType::counter,
                 {"worker"},
                 "Completions that a worker's loop took from io_uring."});
    of_each_worker([&](const std::string& worker, const auto& did) {
        text.sample({worker}, did.completions);
    });
    text.family({"rnbd_reactor_looks",
                 "",
                 MetricType::counter,
                 {"worker", "result"},
                 "With busy_poll: looks for news instead of sleeping."});
    of_each_worker([&](const std::string& worker, const auto& did) {
        text.sample({worker, "found"}, did.looks_found);
        text.sample({worker, "fruitless"}, did.looks_fruitless);
    });
    text.family({"rnbd_reactor_prompt_sends",
                 "",
                 MetricType::counter,
                 {"worker"},
                 "With prompt_sends: sends that left at once, not by io_uring."});
    of_each_worker(
        [&](const std::string& worker, const auto& did) { text.sample({worker}, did.calls); });
    text.family({"rnbd_reactor_batch_turns",
                 "",
                 MetricType::counter,
                 {"worker"},
                 "With batch_scheduling: turns while the thread was of SCHED_BATCH."});
    of_each_worker([&](const std::string& worker, const auto& did) {
        text.sample({worker}, did.batch_turns);
    });
    work_->metrics(text);
    return text;
}

// Before there is memory that should be near. Returns those that are there: none if none is wished.
std::optional<CpuList> use_cpus(const CpuList& wanted, Logger& log) {
    if (wanted.none()) return wanted;
    const auto used = run_on_cpus(wanted);
    if (!used) {
        const bool none = used.error() == std::errc::invalid_argument;
        log.critical("cpus: {}: {}", to_string(wanted),
                     none ? "none of these is there for this process" : used.error().message());
        return std::nullopt;
    }
    if (*used != wanted) {
        log.warn("cpus: {}: of these there are only {}", to_string(wanted), to_string(*used));
    }
    return *used;
}

// Each worker stays on its share of the processors, dealt out in turn, or on one if there are fewer
// than workers: what it touches first is in the memory beside them.
void stay_on_share(const CpuList& cpus, std::uint32_t worker, std::uint32_t workers) {
    if (cpus.none()) return;
    const std::size_t hands = std::min<std::size_t>(workers, cpus.count());
    CpuList share;
    std::size_t dealt = 0;
    for (std::size_t cpu = 0; cpu < cpus_max; ++cpu) {
        if (cpus[cpu] && dealt++ % hands == worker % hands) share.set(cpu);
    }
    // They are there, or were a moment ago: if not any more, the worker runs where the process may.
    static_cast<void>(run_on_cpus(share));
}

// Null: the first is enough.
std::expected<std::unique_ptr<rtrs::ReactorGroup>, std::error_code> make_workers(
    rtrs::Reactor& first, const rtrs::Reactor::Options& each, const DaemonSettings& settings,
    const CpuList& cpus, rtrs::Reactor::InFlight polls_for) {
    first.set_busy_poll(settings.busy_poll, polls_for);
    first.set_prompt_sends(settings.prompt_sends);
    first.set_batch_scheduling(settings.batch_scheduling);
    if (settings.workers == 1) return nullptr;
    auto group = rtrs::ReactorGroup::create(
        first, {.members = settings.workers,
                .each = each,
                .begin = [cpus, workers = settings.workers](std::uint32_t number) {
                    pthread_setname_np(pthread_self(),
                                       ("rnbd-worker-" + std::to_string(number)).c_str());
                    stay_on_share(cpus, number, workers);
                }});
    if (!group) return group;
    for (std::uint32_t i = 1; i < settings.workers; ++i) {
        first.member(i).set_busy_poll(settings.busy_poll, polls_for);
        first.member(i).set_prompt_sends(settings.prompt_sends);
    }
    stay_on_share(cpus, 0, settings.workers);
    return group;
}

// The kernel takes back what a process had locked some moments after it was killed: who comes after
// it under the same limit waits for that. Not too often: what an attempt had until it failed is
// given back as slowly.
template <typename Make>
auto made_patiently(Logger& log, Make make) {
    constexpr auto again_after = std::chrono::milliseconds(250);
    constexpr int attempts = 20;
    for (int left = attempts;; --left) {
        auto made = make();
        if (made || made.error() != std::errc::not_enough_memory || left == 0) return made;
        if (left == attempts) {
            log.warn("no locked memory for io_uring yet, trying for {} s",
                     attempts * again_after / std::chrono::seconds(1));
        }
        std::this_thread::sleep_for(again_after);
    }
}

// What is in the way of a control socket, and what may be done about it.
std::string why_no_control(const std::string& program, const std::string& path,
                           std::error_code error) {
    if (error == std::errc::file_exists) {
        return fmt::format(
            "control socket {}: found something that is no socket, expected nothing "
            "there, or a socket: remove it, or name another one as `control`",
            path);
    }
    const bool in_use = error == std::errc::address_in_use;
    if (const std::string others = whose_socket_file(path); !in_use && !others.empty()) {
        return fmt::format(
            "control socket {}: {}: {}: remove it if nothing of that user runs, or name another "
            "one as `control`",
            path, error.message(), others);
    }
    const pid_t other = in_use ? socket_listener(path) : 0;
    if (other == 0) return fmt::format("control socket {}: {}", path, error.message());
    const std::string who = rtrs::process_words(other);
    return fmt::format("{}{} answers at {}: end that one, or name another socket as `control`",
                       rtrs::process_name(other) == program ? "another " : "", who, path);
}

// Nothing was served yet: there is nothing to finish.
[[noreturn]] void end_unserved() {
    std::fflush(nullptr);
    std::_Exit(exit_code::failed);
}

// Reads the configuration and sets the log up; else the exit code.
std::expected<DaemonSettings, int> configure(const DaemonProgram& program, const DaemonTypes& types,
                                             const DaemonCommandLine& command_line) {
    auto settings = types.load(command_line.config_path);
    auto warnings = config_files_passed_over(command_line.config_path);
    if (!settings) {
        print_config_errors(settings.error());
        print_config_warnings(warnings);
        return std::unexpected(exit_code::config);
    }
    std::ranges::move(settings->warnings, std::back_inserter(warnings));
    if (command_line.mode == DaemonCommandLine::Mode::check_config) {
        print_config_warnings(warnings);
        return std::unexpected(exit_code::ok);
    }
    set_log_level(command_line.log_level.value_or(settings->log_level));
    for (const std::string& area : program.log_areas) logger(area);
    for (const ConfigError& one : warnings) {
        logger(program.log).warn("{}", printable(to_string(one)));
    }
    return std::move(*settings);
}

int run(const DaemonProgram& program, const DaemonTypes& types,
        const DaemonCommandLine& command_line) {
    if (command_line.mode == DaemonCommandLine::Mode::run) keep_reload_for_later();
    auto settings = configure(program, types, command_line);
    if (!settings) return settings.error();
    Logger& log = logger(program.log);
    prepare_process();
    const MemoryShortage shortage = prepare_for_memory_shortage(program.lock_memory);
    const auto cpus = use_cpus(settings->cpus, log);
    if (!cpus) return exit_code::failed;
    const auto no_ring = [&](std::error_code error) {
        log.critical("cannot set up io_uring: {}", why_no_ring(error));
        return exit_code::failed;
    };
    const rtrs::Reactor::Options options = types.reactor_options();
    const auto reactor = made_patiently(log, [&] { return rtrs::Reactor::create(options); });
    if (!reactor) return no_ring(reactor.error());
    const auto workers = made_patiently(
        log, [&] { return make_workers(**reactor, options, *settings, *cpus, program.polls_for); });
    if (!workers) return no_ring(workers.error());
    const auto use_log_level = [&](LogLevel level) {
        if (!command_line.log_level) set_log_level(level);
    };
    auto control = ControlServer::create(**reactor, {.socket_path = settings->control});
    if (!control) {
        log.critical("{}",
                     why_no_control(program.description.name, settings->control, control.error()));
        end_unserved();
    }
    const auto frame = std::make_unique<Frame>(
        DaemonContext{**reactor, command_line.config_path, use_log_level, shortage}, program, types,
        std::move(*settings), std::move(*control));
    auto started = frame->start();
    if (started && *workers) {
        if (const auto error = (*workers)->start()) {
            started = std::unexpected("cannot start the workers: " + error.message());
        }
    }
    if (!started) {
        log.critical("{}", started.error());
        frame->remove_files();
        end_unserved();
    }
    frame->ready();
    (*reactor)->run();
    if (*workers) (*workers)->stop();
    return exit_code::ok;
}

}  // namespace

int run_daemon(const DaemonProgram& program, const DaemonTypes& types, int argc,
               const char* const* argv) {
    const auto command_line = parse_command_line(program.description, argc, argv);
    if (!command_line) return command_line.error();
    return run(program, types, *command_line);
}

}  // namespace rnbd
