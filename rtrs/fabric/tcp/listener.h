// The listening side: accepts sockets, reads their connect request and hands it to the owner.
//
// An Acceptor outlives its Listener for the turns that the ring needs to let go of its operations.
#pragma once

#include <memory>

#include "rtrs/base/clock.h"
#include "rtrs/base/intrusive_list.h"
#include "rtrs/fabric/tcp/handshake_reader.h"
#include "rtrs/fabrics.h"
#include "rtrs/sockets/accept_loop.h"
#include "rtrs/sockets/address.h"

namespace rtrs::tcp {

class Acceptor;

// An accepted socket, until its connect request has arrived. Deletes itself.
class Handshake : public ListLink {
  public:
    Handshake(Acceptor& acceptor, int fd);
    // Closes the socket; the acceptor is told when the ring has let go of it.
    void stop();

  private:
    friend class Acceptor;
    void receive();
    void on_received(const Operation::Result& result);
    void refuse_version();

    Acceptor& acceptor_;
    int fd_;
    bool stopping_ = false;
    Timer timer_;
    MemberOperation<&Handshake::on_received> receive_{*this};
    HandshakeReader request_{HandshakeReader::Awaited::connect_request};
};

class Acceptor final : public std::enable_shared_from_this<Acceptor>, private AcceptLoop::Handler {
  public:
    Acceptor(Reactor& reactor, const TcpFabricOptions& options, ListenerHandler& handler);
    ~Acceptor();
    void start(Descriptor listener) { accepting_.start(std::move(listener)); }
    // From here on the handler is not called. The acceptor keeps itself alive until idle().
    void stop();
    bool idle() const noexcept {
        return accepting_.idle() && handshakes_count_ == 0 && ending_.empty();
    }

  private:
    friend class Handshake;
    void on_accepted(int fd) override;
    void on_cannot_accept(std::error_code error) override;
    void on_accept_stopped() override {}  // linger() looks
    // How many handshakes may run at a time. fd: the newest descriptor.
    std::uint64_t handshakes_max(int fd) const noexcept;
    void ending(Handshake& handshake);
    // The handshake's request was malformed, or did not come.
    void refused(Handshake& handshake);
    void finished(Handshake& handshake);
    void hand_over(Handshake& handshake);
    static void linger(const std::shared_ptr<Acceptor>& acceptor);

    Reactor& reactor_;
    TcpFabricOptions options_;
    ListenerHandler& handler_;
    bool stopped_ = false;
    AcceptLoop accepting_;
    IntrusiveList<Handshake> handshakes_;  // oldest first
    std::uint32_t handshakes_count_ = 0;   // of handshakes_
    IntrusiveList<Handshake> ending_;      // stopped; the ring still holds them
};

// ERRORS: EADDRINUSE, EACCES, EINVAL, EADDRNOTAVAIL, EMFILE.
std::expected<std::unique_ptr<Listener>, std::error_code> make_listener(
    Reactor& reactor, const TcpFabricOptions& options, const Address& address,
    ListenerHandler& handler);

}  // namespace rtrs::tcp
