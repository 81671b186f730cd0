// The dialling side's handshake: connect, connect request, accept or reject. Owned by its endpoint
// until that is established or drained.
#pragma once

#include "rtrs/base/clock.h"
#include "rtrs/fabric/tcp/endpoint.h"
#include "rtrs/fabric/tcp/frame.h"
#include "rtrs/fabric/tcp/handshake_reader.h"
#include "rtrs/sockets/address.h"

namespace rtrs::tcp {

// Writes a whole handshake frame to a socket that has sent little so far.
std::error_code send_now(int fd, const HandshakeFrame& frame) noexcept;

class Dial {
  public:
    Dial(TcpEndpoint& endpoint, const TcpEndpoint::DialOptions& options);
    void start();
    // Ends what is in flight; idle() becomes true.
    void stop() noexcept;
    bool idle() const noexcept { return !connect_.in_flight && !receive_.in_flight; }
    // The private data of the peer's answer.
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
