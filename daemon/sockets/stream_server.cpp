#include "daemon/sockets/stream_server.h"

#include <algorithm>
#include <string_view>

#include "rtrs/base/assert.h"
#include "rtrs/base/member_call.h"

namespace rnbd {

// --- A connection.

StreamConnection::StreamConnection(const Accepted& accepted)
    : server_(accepted.server),
      id_(accepted.id),
      socket_(accepted.fd),
      timer_(server_.reactor(), this, rtrs::member_call<&StreamConnection::end>) {}

StreamConnection::~StreamConnection() { RTRS_ASSERT(!reading_.in_flight && !sending_.in_flight); }

void StreamConnection::end() {
    if (ended_) return;
    ended_ = true;
    timer_.disarm();
    ::shutdown(fd(), SHUT_RDWR);
    if (reading_.in_flight) server_.reactor().cancel(reading_);
    if (sending_.in_flight) server_.reactor().cancel(sending_);
    leave_if_idle();
}

void StreamConnection::leave_if_idle() {
    if (left_ || reading_.in_flight || sending_.in_flight) return;
    left_ = true;
    // Not now: this may be inside a handler that still uses the connection. The server waits for
    // its connections before it goes.
    server_.reactor().post([&server = server_, id = id_] { server.forget(id); });
}

void StreamConnection::await_readable() {
    if (!reading_.in_flight) server_.reactor().poll_readable(reading_, fd());
}

void StreamConnection::readable() {
    if (ended_) return leave_if_idle();
    on_readable();
}

void StreamConnection::send(std::string text, std::shared_ptr<const std::string> shared) {
    output_ = std::move(text);
    shared_output_ = std::move(shared);
    sent_ = 0;
    sent_at_ = server_.reactor().now();
    send_rest();
}

void StreamConnection::send_rest() {
    message_ = {};
    message_.msg_iov = pieces_.data();
    std::size_t skip = sent_;
    for (const std::string* text :
         {static_cast<const std::string*>(&output_), shared_output_.get()}) {
        if (text == nullptr) continue;
        const std::string_view rest = std::string_view(*text).substr(std::min(skip, text->size()));
        skip -= text->size() - rest.size();
        if (rest.empty()) continue;
        // The kernel only reads it.
        pieces_[message_.msg_iovlen++] = {const_cast<char*>(rest.data()), rest.size()};
    }
    server_.reactor().sendmsg(sending_, fd(), &message_);
}

void StreamConnection::sent(std::int32_t result) {
    if (ended_) return leave_if_idle();
    if (result <= 0) return end();
    sent_ += static_cast<std::size_t>(result);
    sent_at_ = server_.reactor().now();
    const std::size_t shared = shared_output_ ? shared_output_->size() : 0;
    if (sent_ < output_.size() + shared) return send_rest();
    output_.clear();
    shared_output_.reset();
    on_sent();
}

bool StreamConnection::stands_still() const noexcept {
    return sending() && server_.reactor().now() >= sent_at_ + StreamServer::stuck_time;
}

void StreamConnection::limit_time(rtrs::Duration time) {
    timer_.arm(server_.reactor().now() + time);
}

// --- The server.

StreamServer::StreamServer(rtrs::Reactor& reactor, rtrs::Descriptor listener,
                           std::size_t connections_max, Make make)
    : reactor_(reactor),
      connections_max_(connections_max),
      make_(std::move(make)),
      accepting_(reactor, *this) {
    accepting_.start(std::move(listener));
}

StreamServer::~StreamServer() { RTRS_ASSERT(closed_posted_); }

StreamConnection* StreamServer::find(StreamConnection::Id id) const {
    const auto found = connections_.find(id);
    return found == connections_.end() ? nullptr : found->second.get();
}

void StreamServer::on_accepted(int fd) {
    if (connections_.size() >= connections_max_ && !make_room()) {
        reactor_.close_fd(fd);
        return;
    }
    const StreamConnection::Id id{++connections_ever_};
    connections_.emplace(id, make_({*this, id, fd})).first->second->begin();
}

// Those that have ended go in a later turn. ASSUMES: as many as there may be, or more.
bool StreamServer::make_room() {
    if (connections_.size() >= 2 * connections_max_) return false;
    std::size_t open = 0;
    StreamConnection* oldest_idle = nullptr;
    StreamConnection* oldest_stuck = nullptr;
    for (const auto& [id, connection] : connections_) {  // in the order in which they came
        if (connection->ended()) continue;
        ++open;
        if (oldest_idle == nullptr && connection->is_idle()) oldest_idle = connection.get();
        if (oldest_stuck == nullptr && connection->stands_still()) oldest_stuck = connection.get();
    }
    if (open < connections_max_) return true;
    StreamConnection* const goes = oldest_idle != nullptr ? oldest_idle : oldest_stuck;
    if (goes == nullptr) return false;
    goes->end();
    return true;
}

void StreamServer::forget(StreamConnection::Id id) {
    connections_.erase(id);
    close_when_empty();
}

void StreamServer::close(std::function<void()> closed) {
    RTRS_ASSERT(!closing_);
    closing_ = true;
    closed_ = std::move(closed);
    accepting_.stop();
    for (const auto& [id, connection] : connections_) connection->farewell();
    close_when_empty();
}

void StreamServer::close_when_empty() {
    if (!closing_ || closed_posted_ || !accepting_.idle() || !connections_.empty()) return;
    closed_posted_ = true;
    reactor_.post([done = std::move(closed_)] { done(); });
}

}  // namespace rnbd
