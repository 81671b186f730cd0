#include "daemon/log/log.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "daemon/log/line_budget.h"

using namespace rnbd;

namespace {

// What `write` puts on stderr.
template <typename Write>
std::string captured(Write write) {
    std::FILE* const file = std::tmpfile();
    REQUIRE(file != nullptr);
    const int saved = ::dup(STDERR_FILENO);
    ::dup2(::fileno(file), STDERR_FILENO);
    write();
    std::fflush(stderr);
    ::dup2(saved, STDERR_FILENO);
    ::close(saved);
    std::rewind(file);
    std::string text;
    char part[65536];
    while (const std::size_t got = std::fread(part, 1, sizeof part, file)) text.append(part, got);
    std::fclose(file);
    return text;
}

// stderr is `fd` while `write` runs.
template <typename Write>
void with_stderr(int fd, Write write) {
    const int saved = ::dup(STDERR_FILENO);
    ::dup2(fd, STDERR_FILENO);
    write();
    ::dup2(saved, STDERR_FILENO);
    ::close(saved);
}

// What comes from a reader that never waited, in lines.
std::vector<std::string> lines_there(int fd) {
    std::string all;
    char part[65536];
    for (ssize_t got; (got = ::recv(fd, part, sizeof part, MSG_DONTWAIT)) > 0 ||
                      (got < 0 && errno == ENOTSOCK && (got = ::read(fd, part, sizeof part)) > 0);)
        all.append(part, static_cast<std::size_t>(got));
    std::vector<std::string> lines;
    std::istringstream in(all);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

// Both ends: the second one is never waited for where it is read from.
void read_late(int reader, int writer) {
    constexpr int many = 3000;
    const std::string about(200, '.');
    with_stderr(writer, [&] {
        for (int i = 0; i < many; ++i) logger("rnbd.late").info("{} {}", i, about);
    });
    const auto before = lines_there(reader);
    REQUIRE(before.size() > 10);
    REQUIRE(before.size() < many);
    with_stderr(writer, [&] { logger("rnbd.late").info("after {}", about); });
    auto after = lines_there(reader);
    REQUIRE(after.size() >= 2);
    // A line that was begun when there was no more room is whole all the same.
    std::size_t whole = before.size();
    std::string begun = before.back();
    if (after.size() > 2) {
        begun += after.front();
        CHECK(begun.ends_with(about));
        if (before.back().empty()) ++whole;
    }
    const auto& told = after[after.size() - 2];
    INFO(told);
    CHECK(told.find("rnbd.log: " + std::to_string(many - whole) + " lines were lost here") !=
          std::string::npos);
    CHECK(after.back().ends_with("after " + about));
}

}  // namespace

TEST_CASE("log: a pipe that nobody reads is not waited for") {
    set_log_level(LogLevel::info);
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    read_late(ends[0], ends[1]);
    // Whose reader has gone, neither.
    ::close(ends[0]);
    const auto ignored = std::signal(SIGPIPE, SIG_IGN);
    with_stderr(ends[1], [] { logger("rnbd.late").info("to nobody"); });
    std::signal(SIGPIPE, ignored);
    ::close(ends[1]);
}

TEST_CASE("log: a stream socket that nobody reads, as the journal's, is not waited for") {
    set_log_level(LogLevel::info);
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    read_late(ends[0], ends[1]);
    ::close(ends[0]);
    with_stderr(ends[1], [] { logger("rnbd.late").info("to nobody"); });
    ::close(ends[1]);
}

TEST_CASE("log: of a subsystem with too many lines some are left out, of others none") {
    set_log_level(LogLevel::debug);
    const auto text = captured([] {
        for (std::uint64_t i = 0; i < 2 * LineBudget::burst; ++i) logger("rnbd.loud").info("loud");
        logger("rnbd.loud").debug("asked for");
        logger("rnbd.loud").warn("wrong");
        logger("rnbd.quiet").info("quiet");
    });
    const auto lines = static_cast<std::uint64_t>(std::ranges::count(text, '\n'));
    CHECK(lines >= LineBudget::burst + 2);
    CHECK(lines < 2 * LineBudget::burst);  // with what was earned meanwhile
    CHECK(text.find("rnbd.loud: asked for") != std::string::npos);
    CHECK(text.find("rnbd.loud: wrong") != std::string::npos);
    CHECK(text.find("info lines of rnbd.loud are left out from here on") != std::string::npos);
    CHECK(text.find("rnbd.quiet: quiet") != std::string::npos);
    set_log_level(LogLevel::info);
}

TEST_CASE("log: one line with level and subsystem, below the level nothing") {
    set_log_level(LogLevel::info);
    const auto text = captured([] {
        LogTracer tracer;
        tracer.trace(rtrs::TraceLevel::warning, "rtrs.path", "host-a", "lost\nit");
        tracer.trace(rtrs::TraceLevel::debug, "rtrs.path", "host-a", "chatter");
        logger("rnbd.volume").info("open");
    });
    CHECK(text.find("warning rtrs.path: host-a: lost\\x0ait\n") != std::string::npos);
    CHECK(text.find("chatter") == std::string::npos);
    CHECK(text.find("info    rnbd.volume: open\n") != std::string::npos);
}

TEST_CASE("log: an area's level is its own until all are set") {
    set_log_level(LogLevel::info);
    logger("area.one.a").info("made");
    logger("area.one").info("made");
    logger("area.oneself").info("made");
    CHECK(set_log_level(LogLevel::debug, "area.one"));
    const auto text = captured([] {
        logger("area.one.a").debug("below");
        logger("area.one").debug("itself");
        logger("area.oneself").debug("beside");
    });
    CHECK(text.find("below") != std::string::npos);
    CHECK(text.find("itself") != std::string::npos);
    CHECK(text.find("beside") == std::string::npos);
    CHECK_FALSE(set_log_level(LogLevel::error, "area.nobody"));
    CHECK_FALSE(set_log_level(LogLevel::error, "area.o"));
    const auto level_of = [](const std::string& name) {
        for (const LogArea& area : log_areas())
            if (area.name == name) return area.level;
        return LogLevel::error;
    };
    CHECK(level_of("area.one.a") == LogLevel::debug);
    CHECK(level_of("area.oneself") == LogLevel::info);
    set_log_level(LogLevel::warning);
    CHECK(level_of("area.one.a") == LogLevel::warning);
    set_log_level(LogLevel::info);
}

TEST_CASE("log: the level can change later, for loggers that exist too") {
    set_log_level(LogLevel::error);
    CHECK(captured([] { logger("rnbd.volume").info("open"); }).empty());
    set_log_level(LogLevel::debug);
    CHECK_FALSE(captured([] { logger("rnbd.volume").debug("open"); }).empty());
    set_log_level(LogLevel::info);
}

TEST_CASE("printable text has neither control characters nor what is no UTF-8") {
    CHECK(printable("host-a \xc3\xa9 \xf0\x9f\x92\xbe \xef\xbf\xbd") ==
          "host-a \xc3\xa9 \xf0\x9f\x92\xbe \xef\xbf\xbd");
    CHECK(printable("a\nb\x1b[2J\x7f") == "a\\x0ab\\x1b[2J\\x7f");
    CHECK(printable("\xc2\x9b"
                    "2J \xc2\xa0") == "\\xc2\\x9b2J \xc2\xa0");
    CHECK(printable("\xff a\xc3") == "\\xff a\\xc3");
    CHECK(printable("\xe2\x82") == "\\xe2\\x82");
}
