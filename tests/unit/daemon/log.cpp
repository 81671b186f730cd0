#include "daemon/log.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

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
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text;
}

}  // namespace

TEST_CASE("log: one line with level and subsystem, below the level nothing") {
    set_up_logging(LogLevel::info);
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
    set_up_logging(LogLevel::info);
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
