#include "daemon/log/log.h"

#include <poll.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "daemon/log/line_budget.h"
#include "daemon/utf8.h"

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
        case LogLevel::critical:
            return spdlog::level::critical;
    }
    return spdlog::level::info;
}

LogLevel from_spdlog(spdlog::level::level_enum level) noexcept {
    for (const LogLevel one :
         {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
        if (level <= to_spdlog(one)) return one;
    }
    return LogLevel::critical;
}

LogLevel to_log_level(rtrs::TraceLevel level) noexcept {
    switch (level) {
        case rtrs::TraceLevel::debug:
            return LogLevel::debug;
        case rtrs::TraceLevel::info:
            return LogLevel::info;
        case rtrs::TraceLevel::warning:
            return LogLevel::warning;
        case rtrs::TraceLevel::error:
            return LogLevel::error;
    }
    return LogLevel::info;
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

// Waits for nobody: 0 means that there is no room now.
std::size_t written_at_once(std::string_view text) {
    constexpr int fd = STDERR_FILENO;
    // The journal is a stream socket. O_NONBLOCK is not ours to set: others share what stderr is.
    ssize_t did = ::send(fd, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (did < 0 && errno == ENOTSOCK) {
        // A pipe with room has it for so much, and regular files always have it.
        iovec piece{const_cast<char*>(text.data()), std::min<std::size_t>(text.size(), PIPE_BUF)};
        pollfd room{fd, POLLOUT, 0};
        if (::poll(&room, 1, 0) == 0) return 0;
        struct stat found{};
        const bool regular = ::fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
        // That no other writer takes the room in between is for newer kernels to say.
        did = regular ? -1 : ::pwritev2(fd, &piece, 1, -1, RWF_NOWAIT);
        if (regular || (did < 0 && errno == EOPNOTSUPP)) did = ::writev(fd, &piece, 1);
    }
    if (did >= 0) return static_cast<std::size_t>(did);
    // What nobody will ever take (a full disk, a reader that is gone) is not waited for either.
    return errno == EAGAIN || errno == EINTR ? 0 : text.size();
}

// A reader of the log that stands still must not hold up requests: the journal may be written to
// the very device that waits for us. Lines that do not fit are counted, and told when one does.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
  protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        LineBudget* const budget = budget_of(message);
        if (budget != nullptr &&
            !budget->spend(rtrs::Instant(std::chrono::steady_clock::now().time_since_epoch()))) {
            const bool first = budget->left_out() == 1;
            if (first && (!write_rest() || !told_of_lost() || !tell_that_some_go(message))) ++lost_;
            return;
        }
        // A line is whole or is not there: one that was begun is ended first.
        if (!write_rest() || !told_of_lost() || !told_of_left_out(budget, message) ||
            !write(message)) {
            ++lost_;
        }
    }
    void flush_() override {}

  private:
    using Message = spdlog::details::log_msg;

    // Null: none. Who asks for debug lines wants them all, and the last words of a daemon are few.
    // What goes wrong is not left out for what goes as it should.
    LineBudget* budget_of(const Message& message) {
        if (message.level <= spdlog::level::debug || message.level >= spdlog::level::critical) {
            return nullptr;
        }
        return &budgets_[{std::string(area_of(message)), is_warning(message)}];
    }

    static std::string_view area_of(const Message& message) {
        return {message.logger_name.data(), message.logger_name.size()};
    }
    static bool is_warning(const Message& message) { return message.level >= spdlog::level::warn; }
    static std::string lines_of(const Message& message) {
        return fmt::format("{} of {}", is_warning(message) ? "warnings and errors" : "info lines",
                           area_of(message));
    }

    bool tell_that_some_go(const Message& message) {
        return say(fmt::format("{} are left out from here on: there were more than {} a second",
                               lines_of(message), LineBudget::per_second));
    }

    bool told_of_left_out(LineBudget* budget, const Message& message) {
        if (budget == nullptr || budget->left_out() == 0) return true;
        if (!say(fmt::format("{} {} were left out here: there were more than {} a second",
                             budget->left_out(), lines_of(message), LineBudget::per_second)))
            return false;
        budget->told();
        return rest_.empty();
    }

    bool told_of_lost() {
        if (lost_ == 0) return true;
        const std::string text = fmt::format("{} {} lost here: nobody read the log", lost_,
                                             lost_ == 1 ? "line was" : "lines were");
        if (!say(text)) return false;
        lost_ = 0;
        return rest_.empty();
    }

    bool say(const std::string& text) {
        return write(Message("rnbd.log", spdlog::level::warn, text));
    }

    // False: nothing of it is written, nor will be.
    bool write(const Message& message) {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        rest_.assign(line.data(), line.size());
        if (write_rest() || rest_.size() < line.size()) return true;
        rest_.clear();
        return false;
    }

    // False: some of it is still to be written.
    bool write_rest() {
        while (!rest_.empty()) {
            std::size_t did = written_at_once(rest_);
            if (did == 0 && room_came()) did = written_at_once(rest_);
            if (did == 0) return false;
            rest_.erase(0, did);
        }
        return true;
    }

    // A reader gets the time to read, so that a burst is not lost: one that stands still, seldom.
    bool room_came() {
        constexpr int wait_max_ms = 100;
        constexpr std::chrono::seconds until_next{10};
        const auto now = std::chrono::steady_clock::now();
        if (now < no_wait_until_) return false;
        pollfd room{STDERR_FILENO, POLLOUT, 0};
        if (::poll(&room, 1, wait_max_ms) > 0) return true;
        no_wait_until_ = now + until_next;
        return false;
    }

    std::map<std::pair<std::string, bool>, LineBudget> budgets_;  // of an area's warnings: true
    std::string rest_;                                            // of a line that was begun
    std::uint64_t lost_ = 0;
    std::chrono::steady_clock::time_point no_wait_until_;
};

std::shared_ptr<spdlog::sinks::sink> the_sink() {
    static const auto sink = [] {
        auto made = std::make_shared<StderrSink>();
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

// A character of ISO 6429's C0 and C1, or DEL: terminals take these as commands.
bool is_control(std::string_view character) noexcept {
    const auto first = static_cast<unsigned char>(character[0]);
    if (character.size() == 1) return first < 0x20 || first == 0x7f;
    return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

}  // namespace

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

void Logger::write(LogLevel level, fmt::string_view text, fmt::format_args values) {
    if (!writes(level)) return;
    try {
        fmt::memory_buffer line;
        fmt::vformat_to(fmt::appender(line), text, values);
        writer_.log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
    } catch (const std::bad_alloc&) {
        return;  // There is no memory for a long line. Who says it has more to do.
    }
}

bool Logger::writes(LogLevel level) const noexcept { return writer_.should_log(to_spdlog(level)); }

Logger& logger(std::string_view subsystem) {
    const std::lock_guard lock(registry_mutex());
    static std::map<std::string, Logger, std::less<>> made;
    if (const auto known = made.find(subsystem); known != made.end()) return known->second;
    const std::string name(subsystem);
    const auto writer = std::make_shared<spdlog::logger>(name, the_sink());
    // Also registers it, with the level that was set, for as long as the process lives.
    spdlog::initialize_logger(writer);
    writer->flush_on(spdlog::level::info);
    // initialize_logger() sets the global formatter on the sinks of a logger it is given.
    writer->set_formatter(make_formatter());
    return made.emplace(name, *writer).first->second;
}

std::string printable(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t bytes = utf8_bytes(text.substr(at));
        const std::string_view one = text.substr(at, std::max<std::size_t>(bytes, 1));
        if (bytes == 0 || is_control(one)) {
            for (const char c : one)
                fmt::format_to(std::back_inserter(result), "\\x{:02x}",
                               static_cast<unsigned char>(c));
        } else {
            result += one;
        }
        at += one.size();
    }
    return result;
}

void LogTracer::trace(rtrs::TraceLevel traced, std::string_view subsystem, std::string_view subject,
                      std::string_view text) {
    Logger& target = logger(subsystem);
    const LogLevel level = to_log_level(traced);
    if (!target.writes(level)) return;
    const std::string about = subject.empty() ? "" : printable(subject) + ": ";
    target.write(level, "{}{}", fmt::make_format_args(about, printable(text)));
}

}  // namespace rnbd
