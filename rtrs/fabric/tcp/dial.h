// The dialling side's way to a connection: connect, connect request, accept or reject.
// Owned by its endpoint until that is established or drained.
#pragma once

#include "rtrs/base/clock.h"
#include "rtrs/fabric/address.h"
#include "rtrs/fabric/tcp/endpoint.h"
#include "rtrs/fabric/tcp/frame.h"
#include "rtrs/fabric/tcp/handshake_reader.h"

namespace rtrs::tcp {

// A stream socket as both sides want it; with the ring it must block. ERRORS: EMFILE, ...
std::expected<int, std::error_code> open_socket(int family) noexcept;
// The same for a socket that was accepted.
void prepare_socket(int fd) noexcept;
// EndpointOptions::silence_max.
void limit_silence(int fd, Duration silence_max) noexcept;
// Endpoint::ask_network(); limit_silence() ends it.
void try_silence_soon(int fd) noexcept;
// Endpoint::unacknowledged().
Duration unacknowledged_by(int fd) noexcept;
// EndpointOptions::Packets::small. Before it is connected: the peer is told, and keeps to it.
void limit_packets(int fd) noexcept;
// Hands a whole handshake frame to a socket that has sent little so far.
std::error_code send_now(int fd, const HandshakeFrame& frame) noexcept;

class Dial {
  public:
    Dial(TcpEndpoint& endpoint, const TcpEndpoint::DialOptions& options);
    void start();
    // Ends what is in flight; idle() becomes true.
    void stop() noexcept;
    bool idle() const noexcept { return !connect_.in_flight && !receive_.in_flight; }
    // What the peer said with its answer.
    Bytes private_data() const noexcept { return answer_.private_data(); }

  private:
    std::error_code open(const Address* source);
    void on_connected(const Operation::Result& result);
    void on_received(const Operation::Result& result);
    void receive();
    void take_answer();
    void accepted();

    TcpEndpoint& endpoint_;
    Address destination_;
    SendQueue::PayloadCrc payload_crc_;
    Duration timeout_;
    std::error_code open_error_;
    Timer timer_;
    MemberOperation<&Dial::on_connected> connect_{*this};
    MemberOperation<&Dial::on_received> receive_{*this};
    HandshakeFrame request_;
    HandshakeReader answer_{HandshakeReader::Awaited::answer};
};

}  // namespace rtrs::tcp
