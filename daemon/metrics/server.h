// Serves a text at GET /metrics by HTTP/1.1, for monitoring systems: on the daemon's own loop.
//
// A connection asks once, is answered and closed. What is true when a request is whole is noted at
// once, and made text a piece a turn, for all who have asked by then; who asks meanwhile waits for
// the next one. A slow reader holds its text until it has it or its time is over, and nobody waits
// for it. How many connections there are at a time is bounded; more are turned away.
//
// OWNER: the frame of a daemon. THREAD: the reactor's (rtrs/reactor.h).
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
    // For the whole request to come in, and for the whole answer to go out.
    rtrs::Duration request_time = std::chrono::seconds(10);
    rtrs::Duration answer_time = std::chrono::seconds(30);
    rtrs::Duration patience = in_use_patience;
};

class MetricsServer {
  public:
    // text: the document of now. Called from the loop.
    using Text = std::function<MetricsText()>;

    // ERRORS: those of listening; EINVAL (listen is none of its forms).
    static std::expected<std::unique_ptr<MetricsServer>, std::error_code> create(
        rtrs::Reactor& reactor, MetricsServerOptions options, Text text);
    ~MetricsServer();  // ASSUMES: closed() was delivered
    MetricsServer(const MetricsServer&) = delete;
    MetricsServer& operator=(const MetricsServer&) = delete;

    // Where it listens, with the real port.
    const std::string& address() const noexcept;
    // If others have removed the Unix socket's file: makes it anew. True: it was so. ERRORS: as
    // create(), and the old socket stays.
    std::expected<bool, std::error_code> listen_again();
    // Cuts what is under way. closed() comes in a later turn.
    void close(std::function<void()> closed);
    // Instead, by a daemon that ends at once: only removes a Unix socket's file.
    void remove_file() noexcept;

  private:
    struct Inside;
    explicit MetricsServer(std::unique_ptr<Inside> inside) noexcept;
    std::unique_ptr<Inside> inside_;
};

}  // namespace rnbd
