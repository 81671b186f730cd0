// Serves a text at GET /metrics by HTTP/1.1, for monitoring systems, on the daemon's own loop.
//
// A connection asks once, is answered, and is closed. When a request is complete, the present
// values are noted at once. They are then turned into text, one piece per turn, for all connections
// that have asked by then; connections that ask meanwhile wait for the next text. A slow reader
// keeps its text until it has received it or its time is over; nobody waits for it. The number of
// connections at a time is limited; one more takes the place of one that asks or takes nothing, or
// is refused (daemon/sockets/stream_server.h).
//
// OWNER: the frame of a daemon (daemon/run_daemon.h). THREAD: the reactor's (rtrs/reactor.h).
// LIFE: create() -> close() -> closed() -> destroyed.
#pragma once

#include <chrono>
#include <cstddef>
#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <system_error>

#include "daemon/metrics/text.h"
#include "daemon/sockets/in_use.h"
#include "rtrs/reactor.h"

namespace rnbd {

struct MetricsServerOptions {
    // "HOST:PORT" with a numeric host, [IPv6]:PORT, or "unix:/PATH".
    std::string listen;
    std::size_t connections_max = 16;
    // The time limits for receiving the whole request, and for sending the whole answer.
    rtrs::Duration request_time = std::chrono::seconds(10);
    rtrs::Duration answer_time = std::chrono::seconds(30);
    rtrs::Duration in_use_timeout = rnbd::in_use_timeout;
};

class MetricsServer {
  public:
    // text: returns the present values. Called from the loop.
    using Text = std::function<MetricsText()>;

    // ERRORS: those of listening; EINVAL (listen has none of its forms).
    static std::expected<std::unique_ptr<MetricsServer>, std::error_code> create(
        rtrs::Reactor& reactor, MetricsServerOptions options, Text text);
    ~MetricsServer();  // ASSUMES: closed() was delivered
    MetricsServer(const MetricsServer&) = delete;
    MetricsServer& operator=(const MetricsServer&) = delete;

    // Where it listens, with the real port.
    const std::string& address() const noexcept;
    // If others have removed the Unix socket's file, makes it anew and returns true.
    // ERRORS: as create(); then the old socket stays.
    std::expected<bool, std::error_code> listen_again();
    // Cuts off connections that are under way. closed() comes in a later turn.
    void close(std::function<void()> closed);
    // Only removes a Unix socket's file; for a daemon that ends at once without close().
    void remove_file() noexcept;

  private:
    struct Inside;
    explicit MetricsServer(std::unique_ptr<Inside> inside) noexcept;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rnbd
