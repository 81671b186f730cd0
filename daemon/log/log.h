// Where the daemons' words go: stderr, one line each, for people or for the journal.
//
// To a terminal or a file:  2026-01-31 12:00:00.123 info  rtrs.session: host-a: link up
// To the journal:           <6>rtrs.session: host-a: link up
// The journal is recognised by JOURNAL_STREAM naming what stderr is.
// Nothing waits for a reader of a pipe or a socket that stands still: lines that it has no room for
// are left out, and a line says how many as soon as one fits again. So are those of a subsystem
// that has too many for too long (daemon/log/line_budget.h).
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

// Of all subsystems, also of those to come, whatever was said of one of them before. Until it is
// called: info.
void set_log_level(LogLevel level);
// Of one area: the subsystem of this name and those below it ("rtrs" has "rtrs.path"). False: there
// is no logger() of that so far, and nothing was changed.
bool set_log_level(LogLevel level, std::string_view area);

// Subsystems that have a logger() so far, by name.
struct LogArea {
    std::string name;
    LogLevel level = LogLevel::info;
};
std::vector<LogArea> log_areas();

// One subsystem's lines: text as fmt takes it, and what is put in. What writes them is known to
// log.cpp alone, which is what keeps this header quick to compile.
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
    // Of what ends the daemon.
    template <typename... Values>
    void critical(fmt::format_string<Values...> text, Values&&... values) {
        write(LogLevel::critical, text, fmt::make_format_args(values...));
    }
    void write(LogLevel level, fmt::string_view text, fmt::format_args values);
    // Whether a line of this level is written at the level that is set.
    bool writes(LogLevel level) const noexcept;

  private:
    spdlog::logger& writer_;
};

// The logger of a subsystem ("rnbd.volume"), made at its first use; lives for ever.
Logger& logger(std::string_view subsystem);

// text with control characters, and what is no UTF-8, written as \xNN: a peer's name cannot forge
// lines, and the journal takes the line for text.
std::string printable(std::string_view text);

// Logs what the transport traces.
class LogTracer final : public rtrs::Tracer {
  public:
    void trace(rtrs::TraceLevel level, std::string_view subsystem, std::string_view subject,
               std::string_view text) override;
};

}  // namespace rnbd
