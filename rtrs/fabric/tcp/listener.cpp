#include "rtrs/fabric/tcp/listener.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "rtrs/base/descriptors.h"
#include "rtrs/base/error.h"
#include "rtrs/base/member_call.h"
#include "rtrs/fabric/tcp/connect_request.h"
#include "rtrs/fabric/tcp/dial.h"
#include "rtrs/fabric/tcp/socket_options.h"
#include "rtrs/sockets/listening_socket.h"

namespace rtrs::tcp {
namespace {

class TcpListener final : public Listener {
  public:
    TcpListener(std::shared_ptr<Acceptor> acceptor, std::string address) noexcept
        : acceptor_(std::move(acceptor)), address_(std::move(address)) {}
    ~TcpListener() override { acceptor_->stop(); }
    std::string address() const override { return address_; }

  private:
    std::shared_ptr<Acceptor> acceptor_;
    std::string address_;
};

}  // namespace

Handshake::Handshake(Acceptor& acceptor, int fd)
    : acceptor_(acceptor), fd_(fd), timer_(acceptor.reactor_, this, member_call<&Handshake::stop>) {
    timer_.arm(acceptor.reactor_.now() + acceptor.options_.handshake_timeout);
    receive();
}

void Handshake::stop() {
    stopping_ = true;
    acceptor_.ending(*this);
    timer_.disarm();
    ::shutdown(fd_, SHUT_RDWR);
    acceptor_.reactor_.cancel(receive_);
}

void Handshake::receive() { acceptor_.reactor_.recv_all(receive_, fd_, request_.space()); }

void Handshake::on_received(const Operation::Result& result) {
    if (stopping_ || result.value <= 0) {
        // Who only looks whether somebody listens says nothing.
        return request_.begun() ? acceptor_.refused(*this) : acceptor_.finished(*this);
    }
    const auto progress = request_.received(static_cast<std::size_t>(result.value));
    if (!progress) return acceptor_.refused(*this);
    if (*progress == HandshakeReader::Progress::more) return receive();
    if (request_.hello().version != fabric_version) return refuse_version();
    acceptor_.hand_over(*this);
}

void Handshake::refuse_version() {
    Hello hello;
    hello.reason = RejectReason::version;
    (void)send_now(fd_, emit_handshake(Opcode::reject, hello, {}));
    acceptor_.finished(*this);
}

Acceptor::Acceptor(Reactor& reactor, const TcpFabricOptions& options, ListenerHandler& handler)
    : reactor_(reactor), options_(options), handler_(handler), accepting_(reactor, *this) {}

Acceptor::~Acceptor() {
    // Left over only if the reactor ended first.
    while (!handshakes_.empty()) delete &handshakes_.pop_front();
    while (!ending_.empty()) delete &ending_.pop_front();
}

void Acceptor::stop() {
    stopped_ = true;
    accepting_.stop();
    handshakes_.for_each([](Handshake& handshake) { handshake.stop(); });
    linger(shared_from_this());
}

void Acceptor::linger(const std::shared_ptr<Acceptor>& acceptor) {
    if (acceptor->idle()) return;
    acceptor->reactor_.post([acceptor] { linger(acceptor); });
}

void Acceptor::on_cannot_accept(std::error_code error) {
    if (options_.tracer == nullptr) return;
    options_.tracer->trace(TraceLevel::warning, "rtrs.fabric.tcp", local_address(accepting_.fd()),
                           "accept: " + error.message() + ", trying again");
}

void Acceptor::on_accepted(int fd) {
    // Sockets that say nothing keep nobody out: who speaks is done in less time than they take.
    const std::uint64_t at_most = handshakes_max(fd);
    while (!handshakes_.empty() && handshakes_count_ >= at_most) handshakes_.front().stop();
    prepare_socket(fd);
    ++handshakes_count_;
    handshakes_.push_back(*new Handshake(*this, fd));
}

// While descriptors are scarce, half of what is left is for others of this process; of the last
// ones all but two.
std::uint64_t Acceptor::handshakes_max(int fd) const noexcept {
    if (!is_of_the_last_quarter(fd)) return options_.handshakes_max;
    const bool last = rtrs::descriptors_left(fd).to_known == 0;
    return std::min<std::uint64_t>(options_.handshakes_max, last ? 2 : descriptors_max() / 8);
}

void Acceptor::ending(Handshake& handshake) {
    IntrusiveList<Handshake>::remove(handshake);
    --handshakes_count_;
    ending_.push_back(handshake);
}

void Acceptor::refused(Handshake& handshake) {
    if (!stopped_ && options_.tracer != nullptr) {
        options_.tracer->trace(TraceLevel::warning, "rtrs.fabric.tcp",
                               rtrs::remote_address(handshake.fd_),
                               "no connection: " + handshake.request_.complaint());
    }
    finished(handshake);
}

void Acceptor::finished(Handshake& handshake) {
    IntrusiveList<Handshake>::remove(handshake);
    if (!handshake.stopping_) --handshakes_count_;
    if (handshake.fd_ >= 0) reactor_.close_fd(handshake.fd_);
    delete &handshake;
}

void Acceptor::hand_over(Handshake& handshake) {
    const int fd = std::exchange(handshake.fd_, -1);
    auto request = std::make_unique<TcpConnectRequest>(
        reactor_, options_, fd, handshake.request_.hello(), handshake.request_.private_data());
    finished(handshake);
    handler_.on_connect_request(std::move(request));  // may end the listener
}

std::expected<std::unique_ptr<Listener>, std::error_code> make_listener(
    Reactor& reactor, const TcpFabricOptions& options, const Address& address,
    ListenerHandler& handler) {
    auto listener = listen_on_tcp(address, SOMAXCONN);
    if (!listener) return std::unexpected(listener.error());
    std::string bound = local_address(listener->get());
    auto acceptor = std::make_shared<Acceptor>(reactor, options, handler);
    acceptor->start(std::move(*listener));
    return std::make_unique<TcpListener>(std::move(acceptor), std::move(bound));
}

}  // namespace rtrs::tcp
