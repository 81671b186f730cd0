// The sockets that serve devices, by address. Devices may share a socket; clients then choose one
// by name. A socket is opened with its first device and closed with its last.
//
// OWNER: Client. THREAD: the reactor's (rtrs/reactor.h).
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "rnbd-client/device.h"
#include "rnbd-client/nbd/listener.h"
#include "rtrs/base/member_call.h"

namespace rnbd {

class NbdSockets final : public NbdListener::Handler {
  public:
    class Handler {
      public:
        // After detach(): no connection on the device is left. The device may be destroyed from
        // inside this call.
        virtual void on_detached(Device& device) = 0;

      protected:
        ~Handler() = default;
    };

    // emptied: called whenever the last socket has gone.
    NbdSockets(NbdConnection::Environment environment, std::function<void()> emptied)
        : environment_(environment), emptied_(std::move(emptied)) {}
    ~NbdSockets();  // ASSUMES: every device was detached, and empty()
    NbdSockets(const NbdSockets&) = delete;
    NbdSockets& operator=(const NbdSockets&) = delete;

    // Serves the device at the address, too.
    // ERRORS: as NbdListener::open().
    std::expected<void, NbdListener::Failure> attach(const NbdAddress& address, Device& device);
    // The real address of the socket that was opened for this address: instead of port 0 it has the
    // port that the system chose. The same address if there is no such socket.
    NbdAddress bound(const NbdAddress& address) const;
    // Makes socket files anew that others have removed, and traces that.
    void listen_again();
    // For a process that ends and has served nobody (NbdListener::remove_file()).
    void remove_files() noexcept;
    // New clients do not find the device any more, and its connections end when the requests that
    // they have sent are answered. on_detached comes in a later turn, also if the device was on no
    // socket; then its addresses are free for others. It does not wait for connections of other
    // devices.
    void detach(Device& device, Handler& handler);
    // The connections of the device end without answers.
    void abort(const Device& device);
    std::size_t connections(const Device& device) const noexcept;
    // A socket may outlive its devices for as long as it takes to end clients in the handshake.
    bool empty() const noexcept { return sockets_.empty(); }
    NbdConnection::Environment environment() const noexcept { return environment_; }

  private:
    struct Socket {
        NbdExports exports;
        std::unique_ptr<NbdListener> listener;
        bool closing = false;
    };
    struct Leaving {
        Device* device;
        Handler* handler;
    };

    void on_address_free(NbdListener&) override { settle_soon(); }
    void on_listener_closed(NbdListener& listener) override;
    void on_connection_gone(NbdListener&) override { settle_soon(); }
    void settle_soon();
    void settle();
    bool gone(const Device& device) const noexcept;

    NbdConnection::Environment environment_;
    std::function<void()> emptied_;
    std::vector<std::unique_ptr<Socket>> sockets_;
    std::vector<Leaving> leaving_;
    rtrs::Timer settle_timer_{environment_.reactor, this, rtrs::member_call<&NbdSockets::settle>};
};

}  // namespace rnbd
