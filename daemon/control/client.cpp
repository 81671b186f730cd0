#include "daemon/control/client.h"

#include <fmt/format.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "rtrs/base/descriptor.h"

namespace rnbd {

using nlohmann::json;
using Kind = ControlCallFailure::Kind;

namespace {

// Linux has none beyond.
constexpr int error_number_max = 4095;

using SteadyTime = std::chrono::steady_clock::time_point;

std::unexpected<ControlCallFailure> fail(Kind kind, std::string message) {
    return std::unexpected(ControlCallFailure{kind, std::move(message)});
}

// Which daemon it is about is in nothing that the others say.
std::unexpected<ControlCallFailure> at(const std::string& path, ControlCallFailure failure) {
    failure.message = path + ": " + failure.message;
    if (failure.kind == Kind::timed_out) {
        failure.advice =
            "the daemon may be busy or stopped, or what was asked takes longer and may still "
            "happen: the daemon's log says "
            "more, and --timeout waits longer";
    }
    return std::unexpected(std::move(failure));
}

// "rnbd", "" if that cannot be seen.
std::string owner_of(const std::string& path) {
    struct stat file{};
    if (::stat(path.c_str(), &file) != 0) return "";
    passwd entry{};
    passwd* found = nullptr;
    std::array<char, 4096> text{};
    if (::getpwuid_r(file.st_uid, &entry, text.data(), text.size(), &found) == 0 &&
        found != nullptr) {
        return entry.pw_name;
    }
    return fmt::format("{}", file.st_uid);
}

std::unexpected<ControlCallFailure> not_permitted(const std::string& path) {
    const std::string owner = owner_of(path);
    ControlCallFailure failure{Kind::unreachable, path + ": permission denied"};
    failure.advice =
        owner.empty() ? "only root and the user that the daemon runs as may ask: try it with sudo"
        : owner == "root" ? "it is root's, and only root may ask: try it with sudo"
                          : fmt::format(
                                "it is of user {0}, and only {0} and root may ask: try it "
                                "with sudo",
                                owner);
    return std::unexpected(std::move(failure));
}

constexpr const char* where_it_is =
    "`control` in the daemon's configuration names its socket, as /run/rnbd/server.ctl";

std::unexpected<ControlCallFailure> nobody_listens(const std::string& path) {
    struct stat file{};
    if (::stat(path.c_str(), &file) != 0 || S_ISSOCK(file.st_mode))
        return fail(Kind::away, fmt::format("{}: nobody listens", path));
    const char* const what = S_ISDIR(file.st_mode)   ? "folder"
                             : S_ISREG(file.st_mode) ? "file"
                                                     : "special file";
    ControlCallFailure failure{
        Kind::unreachable,
        fmt::format("{}: found a {}, expected the socket of a daemon", path, what)};
    failure.advice = where_it_is;
    return std::unexpected(std::move(failure));
}

// What it says instead of an answer.
std::unexpected<ControlCallFailure> no_daemon(std::string_view said) {
    ControlCallFailure failure{
        Kind::nonsense,
        fmt::format("found {}, expected the control socket of a daemon",
                    said.starts_with("NBDMAGIC") ? "an NBD server" : "another kind of server")};
    failure.advice = where_it_is;
    return std::unexpected(std::move(failure));
}

std::expected<rtrs::Descriptor, ControlCallFailure> connect_to(const std::string& path,
                                                               SteadyTime deadline) {
    constexpr std::chrono::milliseconds queue_interval{10};
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path)
        return fail(Kind::absent, fmt::format("{}: not a possible socket path", path));
    std::memcpy(address.sun_path, path.data(), path.size());
    rtrs::Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0)
        return fail(Kind::unreachable, fmt::format("socket: {}", std::strerror(errno)));
    // Nothing tells when the queue of those who want in has room again.
    for (;;) {
        if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) ==
            0)
            return socket;
        if (errno == EINTR) continue;
        if (errno != EAGAIN) break;
        if (std::chrono::steady_clock::now() >= deadline)
            return at(path, {Kind::timed_out, "the daemon lets nobody in, and many wait"});
        std::this_thread::sleep_for(queue_interval);
    }
    switch (errno) {
        case ENOENT:
            return fail(Kind::absent, fmt::format("{}: no such socket", path));
        case ECONNREFUSED:
            return nobody_listens(path);
        case EACCES:
        case EPERM:
            return not_permitted(path);
        default:
            return fail(Kind::unreachable, fmt::format("{}: {}", path, std::strerror(errno)));
    }
}

// As who it listens; (uid_t)-1, nobody, if that is not known.
uid_t peer_of(const rtrs::Descriptor& socket) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    const bool known = ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
    return known ? peer.uid : static_cast<uid_t>(-1);
}

// False when the time is over.
bool wait_for(int fd, short events, SteadyTime deadline) {
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                              deadline - std::chrono::steady_clock::now())
                              .count();
        if (left <= 0) return false;
        pollfd wait{fd, events, 0};
        if (::poll(&wait, 1, static_cast<int>(std::min<long long>(left, 60'000))) > 0) return true;
    }
}

// It was there: whom it has no room for it closes the connection to.
std::unexpected<ControlCallFailure> ended_early(std::string message) {
    ControlCallFailure failure{Kind::away, std::move(message)};
    failure.advice =
        "it ended just now, or has as many control connections as it takes: try it again, and end "
        "what holds them open";
    return std::unexpected(std::move(failure));
}

std::expected<void, ControlCallFailure> send_all(const rtrs::Descriptor& socket,
                                                 std::string_view bytes, SteadyTime deadline) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN) {
            if (!wait_for(socket.get(), POLLOUT, deadline))
                return fail(Kind::timed_out, "the daemon does not take the request");
        } else if (errno != EINTR) {
            return ended_early(errno == EPIPE || errno == ECONNRESET
                                   ? "the daemon closed the connection before it was asked"
                                   : fmt::format("send: {}", std::strerror(errno)));
        }
    }
    return {};
}

std::expected<std::string, ControlCallFailure> receive_line(const rtrs::Descriptor& socket,
                                                            SteadyTime deadline) {
    std::string line;
    char block[64u << 10];
    for (;;) {
        const ssize_t bytes = ::recv(socket.get(), block, sizeof block, 0);
        if (bytes > 0) {
            line.append(block, static_cast<std::size_t>(bytes));
            // As an NBD server, which would end the connection, or wait, after its greeting.
            if (line.front() != '{') return no_daemon(line);
            if (block[bytes - 1] == '\n') return line;
            if (line.size() > control_answer_bytes_max)
                return fail(Kind::nonsense, "the answer is too long");
        } else if (bytes == 0) {
            return ended_early("the daemon went away before it answered");
        } else if (errno == EAGAIN) {
            if (!wait_for(socket.get(), POLLIN, deadline))
                return fail(Kind::timed_out, "no answer in time");
        } else if (errno != EINTR) {
            return ended_early(errno == ECONNRESET
                                   ? "the daemon closed the connection before it answered"
                                   : fmt::format("recv: {}", std::strerror(errno)));
        }
    }
}

std::expected<json, ControlCallFailure> read_answer(const std::string& line) {
    json answer = json::parse(line, nullptr, false);
    if (!answer.is_object() || answer.value("schema", json()) != control_schema)
        return fail(Kind::nonsense, "the answer is not of the rnbd-control protocol");
    if (answer.value("version", json()) != control_version)
        return fail(Kind::nonsense,
                    "the daemon speaks another version of the control protocol; "
                    "use the rnbdctl that came with it");
    if (answer.value("ok", json()) == true) {
        json result = answer.value("result", json());
        if (!result.is_object()) return fail(Kind::nonsense, "the answer has no proper result");
        return result;
    }
    const json error = answer.value("error", json::object());
    if (!error.is_object()) return fail(Kind::nonsense, "the answer has no proper error");
    const auto word = error.value("code", json());
    const auto message = error.value("message", json());
    ControlCallFailure failure{Kind::refused,
                               message.is_string() ? message.get<std::string>() : ""};
    if (word.is_string()) failure.code = control_error_from(word.get<std::string>());
    const auto number = error.value("errno", json());
    if (number.is_number_unsigned() && number <= error_number_max) {
        failure.error_number = number.get<int>();
    }
    return std::unexpected(std::move(failure));
}

}  // namespace

std::expected<json, ControlCallFailure> control_call(const ControlCallOptions& options,
                                                     std::string_view command,
                                                     const json& arguments) {
    const SteadyTime deadline = std::chrono::steady_clock::now() + options.timeout;
    const auto socket = connect_to(options.socket_path, deadline);
    if (!socket) return std::unexpected(socket.error());
    if (options.daemon_user != nullptr) *options.daemon_user = peer_of(*socket);
    const std::string request = emit_control_request(command, arguments) + "\n";
    if (auto sent = send_all(*socket, request, deadline); !sent)
        return at(options.socket_path, sent.error());
    const auto line = receive_line(*socket, deadline);
    if (!line) return at(options.socket_path, line.error());
    return read_answer(*line);
}

}  // namespace rnbd
