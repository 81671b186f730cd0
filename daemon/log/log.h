// The log of the daemons: stderr, one line per message, for people or for the journal.
//
// To a terminal or a file:  2026-01-31 12:00:00.123 info  rtrs.session: host-a: link up
// To the journal:           <6>rtrs.session: host-a: link up
// stderr is the journal if JOURNAL_STREAM names it. Logging never waits for a reader of a pipe or
// socket that stands still: lines for which there is no room are left out, and as soon as a line
// fits again, one says how many. Lines of a subsystem that logs too much for too long are left out,
// too (daemon/log/line_budget.h).
//
// THREAD: any.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <vector>

#include "daemon/log/level.h"
#include "rtrs/trace.h"

namespace spdlog {
class logger;
}

namespace rnbd {

// Sets the level of all subsystems, present and later ones, and overrides what was set for a single
// one before. Before the first call the level is info.
void set_log_level(LogLevel level);
// Sets the level of one area: the subsystem of this name and those below it ("rtrs" includes
// "rtrs.path"). False: no such subsystem has a logger() so far, and nothing was changed.
bool set_log_level(LogLevel level, std::string_view area);

// The subsystems that have a logger() so far, by name.
struct LogArea {
    std::string name;
    LogLevel level = LogLevel::info;
};
std::vector<LogArea> log_areas();

// Logs the lines of one subsystem: a format string of fmt, and its values. Only log.cpp knows what
// writes them, which keeps this header quick to compile.
class Logger {
  public:
    explicit Logger(spdlog::logger& writer) noexcept : writer_(writer) {}

    template <typename... Values>
    void debug(fmt::format_string<Values...> text, Values&&... values) {
        write(LogLevel::debug, text, fmt::make_format_args(values...));
    }
    template <typename... Values>
    void info(fmt::format_string<Values...> text, Values&&... values) {
        write(LogLevel::info, text, fmt::make_format_args(values...));
    }
    template <typename... Values>
    void warn(fmt::format_string<Values...> text, Values&&... values) {
        write(LogLevel::warning, text, fmt::make_format_args(values...));
    }
    template <typename... Values>
    void error(fmt::format_string<Values...> text, Values&&... values) {
        write(LogLevel::error, text, fmt::make_format_args(values...));
    }
    // For what ends the daemon.
    template <typename... Values>
    void critical(fmt::format_string<Values...> text, Values&&... values) {
        write(LogLevel::critical, text, fmt::make_format_args(values...));
    }
    void write(LogLevel level, fmt::string_view text, fmt::format_args values);
    // Whether lines of this level are written at the level that is set.
    bool writes(LogLevel level) const noexcept;

  private:
    spdlog::logger& writer_;
};

// The logger of a subsystem ("rnbd.volume"), made at its first use; lives for ever.
Logger& logger(std::string_view subsystem);

// The text with control characters, and bytes that are not UTF-8, written as \xNN. So a peer's name
// cannot forge lines, and the journal treats the line as text.
std::string printable(std::string_view text);

// Logs what the transport traces.
class LogTracer final : public rtrs::Tracer {
  public:
    void trace(rtrs::TraceLevel level, std::string_view subsystem, std::string_view subject,
               std::string_view text) override;
};

}  // namespace rnbd
