// A socket that serves devices to NBD clients: it accepts and owns the connections. If there are
// connections_max of them, or only a quarter of RLIMIT_NOFILE is left, a new client takes the place
// of the one that has been about to choose a device for longest, at least for a second; if there is
// none it is refused.
//
// OWNER: NbdSockets. THREAD: the reactor's (rtrs/reactor.h).
// LIFE: open() -> clients come and go -> close() -> on_address_free -> on_listener_closed ->
// destroyed. reactor, tracer and exports outlive it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/sockets/unix_listener.h"
#include "rnbd-client/nbd/address.h"
#include "rnbd-client/nbd/connection.h"
#include "rtrs/base/log_rate_limit.h"
#include "rtrs/sockets/accept_loop.h"

namespace rnbd {

struct NbdListenerOptions {
    NbdAddress address;
    mode_t mode = 0660;  // permissions of a Unix socket's file
    std::uint32_t connections_max = 4096;
    NbdConnectionOptions connection{};
};

class NbdListener final : private NbdConnection::Owner, private rtrs::AcceptLoop::Handler {
  public:
    class Handler {
      public:
        // After close(): it does not listen any more, but connections may be left. From the next
        // turn on another listener may use its address.
        virtual void on_address_free(NbdListener& listener) = 0;
        // After close(): nothing is left; the listener may be destroyed from inside this call.
        virtual void on_listener_closed(NbdListener& listener) = 0;
        // One of its connections is gone.
        virtual void on_connection_gone(NbdListener& listener) = 0;

      protected:
        ~Handler() = default;
    };

    NbdListener(NbdConnection::Environment environment, const NbdExports& exports,
                NbdListenerOptions options, Handler& handler);
    ~NbdListener();  // ASSUMES: never opened, or on_listener_closed was delivered
    NbdListener(const NbdListener&) = delete;
    NbdListener& operator=(const NbdListener&) = delete;

    // A Unix socket whose process is gone is replaced; one that still answers is not.
    // ERRORS: EADDRINUSE (somebody serves there), ENAMETOOLONG, ENOTSOCK (the path is another kind
    // of file), and errors of socket(2), bind(2) and listen(2); the text names the address.
    struct Failure {
        std::error_code error;
        std::string text;
    };
    std::expected<void, Failure> open();
    // If others have removed the file of its Unix socket, makes the file anew if possible, and
    // traces that. Connections stay.
    void listen_again();
    // Removes the file of its Unix socket, if it is still the listener's own. For a listener that
    // serves nobody and will not be closed, because the process ends; close() removes it, too.
    void remove_file() noexcept;
    // Stops accepting and removes the socket's file; connections answer what they have received,
    // then close.
    void close();
    // The same for the connections of one device; the socket stays.
    void finish_connections(const Device& device);
    // Ends the connections of a device without answers, if their end takes too long.
    void abort_connections(const Device& device);
    std::size_t connections_of(const Device& device) const noexcept;

    // Becomes false some turns after close().
    bool listening() const noexcept { return accepting_.fd() >= 0; }
    // The address; instead of port 0 it has the port that the system chose.
    const NbdAddress& bound() const noexcept { return bound_; }
    const NbdListenerOptions& options() const noexcept { return options_; }
    const std::vector<std::unique_ptr<NbdConnection>>& connections() const noexcept {
        return connections_;
    }
    std::uint64_t accepted() const noexcept { return accepted_; }
    std::uint64_t refused() const noexcept { return refused_; }

  private:
    std::expected<rtrs::Descriptor, Failure> listen_on_unix_socket();
    std::expected<rtrs::Descriptor, Failure> listen_on_port();
    Failure failure(std::error_code error, std::string_view what) const;
    void on_accepted(int fd) override;
    void on_cannot_accept(std::error_code error) override;
    void on_accept_stopped() override;
    bool make_room(std::string_view reason);
    void refuse(int fd, std::string_view reason);
    std::string name_of(int fd) const;
    void on_connection_closed(NbdConnection& connection) override;
    std::optional<std::uint64_t> handshake_failed() noexcept override;
    void end_if_idle();

    NbdConnection::Environment environment_;
    const NbdExports& exports_;
    const NbdListenerOptions options_;
    Handler& handler_;
    NbdAddress bound_;
    rtrs::AcceptLoop accepting_;
    std::optional<UnixSocketFile> file_;  // while there is a file to be removed
    bool open_ = false;
    bool closing_ = false;
    bool full_ = false;
    rtrs::LogRateLimit failed_handshakes_;
    std::uint64_t accepted_ = 0;
    std::uint64_t refused_ = 0;
    std::vector<std::unique_ptr<NbdConnection>> connections_;
    rtrs::MemberTask<&NbdListener::end_if_idle> turn_end_{*this};
};

}  // namespace rnbd
