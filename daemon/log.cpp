#include "daemon/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>

namespace rnbd {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) noexcept {
    switch (level) {
        case LogLevel::debug:
            return spdlog::level::debug;
        case LogLevel::info:
            return spdlog::level::info;
        case LogLevel::warning:
            return spdlog::level::warn;
        case LogLevel::error:
            return spdlog::level::err;
    }
    return spdlog::level::info;
}

LogLevel from_spdlog(spdlog::level::level_enum level) noexcept {
    if (level <= spdlog::level::debug) return LogLevel::debug;
    if (level == spdlog::level::info) return LogLevel::info;
    return level == spdlog::level::warn ? LogLevel::warning : LogLevel::error;
}

spdlog::level::level_enum to_spdlog(rtrs::TraceLevel level) noexcept {
    switch (level) {
        case rtrs::TraceLevel::debug:
            return spdlog::level::debug;
        case rtrs::TraceLevel::info:
            return spdlog::level::info;
        case rtrs::TraceLevel::warning:
            return spdlog::level::warn;
        case rtrs::TraceLevel::error:
            return spdlog::level::err;
    }
    return spdlog::level::info;
}

// sd-daemon(3): "<6>" and so on, the priorities of syslog.
class JournalPriority final : public spdlog::custom_flag_formatter {
  public:
    void format(const spdlog::details::log_msg& message, const std::tm&,
                spdlog::memory_buf_t& out) override {
        const char digit = message.level >= spdlog::level::critical ? '2'
                           : message.level == spdlog::level::err    ? '3'
                           : message.level == spdlog::level::warn   ? '4'
                           : message.level == spdlog::level::info   ? '6'
                                                                    : '7';
        const char prefix[] = {'<', digit, '>'};
        out.append(prefix, prefix + sizeof prefix);
    }
    std::unique_ptr<custom_flag_formatter> clone() const override {
        return std::make_unique<JournalPriority>();
    }
};

bool stderr_is_journal() {
    const char* const stream = std::getenv("JOURNAL_STREAM");
    struct stat found{};
    if (stream == nullptr || ::fstat(STDERR_FILENO, &found) != 0) return false;
    return std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino) == stream;
}

std::unique_ptr<spdlog::formatter> make_formatter() {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    if (stderr_is_journal())
        formatter->add_flag<JournalPriority>('*').set_pattern("%*%n: %v");
    else
        formatter->set_pattern("%Y-%m-%d %H:%M:%S.%e %-7l %n: %v");
    return formatter;
}

std::shared_ptr<spdlog::sinks::sink> the_sink() {
    static const auto sink = [] {
        auto made = std::make_shared<spdlog::sinks::stderr_sink_mt>();
        made->set_formatter(make_formatter());
        return made;
    }();
    return sink;
}

// One lock for finding and making loggers; log lines do not take it.
std::mutex& registry_mutex() {
    static std::mutex mutex;
    return mutex;
}

}  // namespace

void set_up_logging(LogLevel level) { set_log_level(level); }

bool set_log_level(LogLevel level, std::string_view area) {
    const std::lock_guard lock(registry_mutex());
    const std::string below = std::string(area) + ".";
    bool found = false;
    spdlog::apply_all([&](const std::shared_ptr<spdlog::logger>& one) {
        if (one->name() != area && !one->name().starts_with(below)) return;
        one->set_level(to_spdlog(level));
        found = true;
    });
    return found;
}

std::vector<LogArea> log_areas() {
    const std::lock_guard lock(registry_mutex());
    std::vector<LogArea> areas;
    spdlog::apply_all([&](const std::shared_ptr<spdlog::logger>& one) {
        // spdlog's own, which nobody uses.
        if (!one->name().empty()) areas.push_back({one->name(), from_spdlog(one->level())});
    });
    std::ranges::sort(areas, {}, &LogArea::name);
    return areas;
}

void set_log_level(LogLevel level) {
    const std::lock_guard lock(registry_mutex());
    // Applies to the loggers that exist and to those made later.
    spdlog::set_level(to_spdlog(level));
}

spdlog::logger& logger(std::string_view subsystem) {
    const std::lock_guard lock(registry_mutex());
    const std::string name(subsystem);
    if (const auto known = spdlog::get(name)) return *known;
    const auto made = std::make_shared<spdlog::logger>(name, the_sink());
    // Also registers it, with the level that was set.
    spdlog::initialize_logger(made);
    made->flush_on(spdlog::level::info);
    // initialize_logger() sets the global formatter on the sinks of a logger it is given.
    made->set_formatter(make_formatter());
    return *made;
}

std::string printable(std::string_view text) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string result;
    result.reserve(text.size());
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7f) {
            result += c;
        } else {
            result += "\\x";
            result += digits[byte >> 4];
            result += digits[byte & 0xf];
        }
    }
    return result;
}

void LogTracer::trace(rtrs::TraceLevel level, std::string_view subsystem, std::string_view subject,
                      std::string_view text) {
    spdlog::logger& target = logger(subsystem);
    const auto wanted = to_spdlog(level);
    if (!target.should_log(wanted)) return;
    if (subject.empty())
        target.log(wanted, "{}", printable(text));
    else
        target.log(wanted, "{}: {}", printable(subject), printable(text));
}

}  // namespace rnbd
