#include "rnbd-client/nbd/sockets.h"

#include <algorithm>

#include "rtrs/base/assert.h"

namespace rnbd {

NbdSockets::~NbdSockets() { RTRS_ASSERT(sockets_.empty() && leaving_.empty()); }

std::expected<void, NbdListener::Failure> NbdSockets::attach(const NbdAddress& address,
                                                             Device& device) {
    for (const auto& socket : sockets_) {
        if (socket->listener->options().address != address) continue;
        // A closing one has removed its file already: a new one may take its place.
        if (socket->closing) continue;
        socket->exports.add(device);
        return {};
    }
    auto socket = std::make_unique<Socket>();
    socket->exports.add(device);
    socket->listener = std::make_unique<NbdListener>(environment_, socket->exports,
                                                     NbdListenerOptions{.address = address}, *this);
    if (const auto opened = socket->listener->open(); !opened) return opened;
    sockets_.push_back(std::move(socket));
    return {};
}

NbdAddress NbdSockets::bound(const NbdAddress& address) const {
    // Of many devices not all are looked through for each.
    if (address.transport != NbdTransport::tcp || !address.place.ends_with(":0")) return address;
    for (const auto& socket : sockets_) {
        if (!socket->closing && socket->listener->options().address == address)
            return socket->listener->bound();
    }
    return address;
}

void NbdSockets::listen_again() {
    for (const auto& socket : sockets_) socket->listener->listen_again();
}

void NbdSockets::remove_files() noexcept {
    for (const auto& socket : sockets_) socket->listener->remove_file();
}

void NbdSockets::detach(Device& device, Handler& handler) {
    for (const auto& socket : sockets_) {
        if (!socket->exports.serves(device)) continue;
        socket->exports.remove(device);
        if (socket->exports.count() > 0) {
            socket->listener->finish_connections(device);
        } else {
            socket->closing = true;
            socket->listener->close();
        }
    }
    leaving_.push_back({&device, &handler});
    settle_soon();
}

void NbdSockets::abort(const Device& device) {
    for (const auto& socket : sockets_) socket->listener->abort_connections(device);
}

std::size_t NbdSockets::connections(const Device& device) const noexcept {
    std::size_t count = 0;
    for (const auto& socket : sockets_) count += socket->listener->connections_of(device);
    return count;
}

void NbdSockets::on_listener_closed(NbdListener& listener) {
    std::erase_if(sockets_, [&](const auto& one) { return one->listener.get() == &listener; });
    settle_soon();
    if (sockets_.empty()) emptied_();
}

// Not from inside an event of a connection or a listener.
void NbdSockets::settle_soon() {
    if (!leaving_.empty()) settle_timer_.arm(environment_.reactor.now());
}

bool NbdSockets::gone(const Device& device) const noexcept {
    // Of clients in the handshake none has it any more. Connections of another device may be there
    // for ever: what that one waits for is nothing to this one.
    return std::ranges::none_of(sockets_, [&](const auto& socket) {
        return (socket->closing && socket->listener->listening()) ||
               socket->listener->connections_of(device) > 0;
    });
}

void NbdSockets::settle() {
    std::vector<Leaving> left;
    std::erase_if(leaving_, [&](const Leaving& one) {
        if (!gone(*one.device)) return false;
        left.push_back(one);
        return true;
    });
    for (const Leaving& one : left) one.handler->on_detached(*one.device);
}

}  // namespace rnbd
