// ClientPath: how it is connected. Connections are dialled one after the other, then the info
// messages are exchanged. Besides them, one connection for messages is kept up.

#include <algorithm>
#include <utility>

#include "rtrs/base/host.h"
#include "rtrs/base/pages.h"
#include "rtrs/core/client_path_inside.h"
#include "rtrs/limits.h"
#include "rtrs/wire/info.h"

namespace rtrs {
namespace {

// What a connection may have posted in addition to requests: heartbeats, their answers, the info
// request.
constexpr std::uint32_t send_queue_reserve = 64;

// A server may offer more chunks than a queue has entries.
std::uint32_t io_receives(std::uint32_t queue_depth) {
    return std::min(
        limits::client_io_receives_per_permit * queue_depth + limits::io_heartbeat_receives,
        Endpoint::queue_depth_max);
}

}  // namespace

std::string offer_text(std::uint32_t queue_depth, std::uint32_t io_bytes,
                       std::uint32_t header_bytes) {
    return "it offers a queue depth of " + std::to_string(queue_depth) + " with " +
           std::to_string(io_bytes) + " bytes of data and " + std::to_string(header_bytes) +
           " of headers per request";
}

std::uint32_t ClientPath::features_wanted() const noexcept {
    std::uint32_t features = 0;
    if (options_.protection == Protection::exactly_once) {
        features |= features_of(Feature::failover, Feature::connection_heartbeats);
    }
    if (options_.messages) features |= features_of(Feature::messages);
    return features;
}

ConnectRequestMessage ClientPath::connect_request(std::uint16_t connection) const noexcept {
    return {.connection_id = connection,
            .connection_count = connection_count_,
            .reconnect_count = reconnect_count_,
            .path_uuid = path_uuid_,
            .session_uuid = session_uuid_,
            .first_connection = first_connection_,
            .features = features_wanted()};
}

void ClientPath::dial(std::uint16_t id) {
    std::byte private_data[ConnectRequestMessage::wire_bytes];
    connect_request(id).emit(private_data);
    // The depth of connection 0 must suffice although the server has not yet told the queue depth.
    const std::uint32_t receives =
        id == 0 ? limits::client_service_receives + 1 : io_receives(geometry_.queue_depth);
    // Twice, because a permit's next request may be posted before its last one has completed: many
    // requests leave as one message, and the server answers the first of them while the last still
    // wait for the socket.
    const std::uint32_t sends = 2 * (id == 0 ? limits::service_queue_depth : geometry_.queue_depth);
    auto& connection = *connections_.emplace_back(std::make_unique<Connection>(*this, id));
    auto endpoint = address_.fabric->connect(
        *memory_.domain, address_.source, address_.destination, private_data,
        {.send_queue_depth = std::min(sends + send_queue_reserve, Endpoint::queue_depth_max),
         .receive_queue_depth = receives,
         .worker = address_.worker + id,
         .silence_max = silence_max_beside(options_.heartbeat_timeout),
         .packets = packets()},
        connection);
    if (!endpoint) {
        fail(endpoint.error(), "cannot dial");
        return;
    }
    connection.endpoint = std::move(*endpoint);
    dial_ends_ = environment_.clock.now() + address_.fabric->connect_timeout();
}

std::expected<std::unique_ptr<Endpoint>, std::error_code> ClientPath::dial_over(
    ClientPath& via, EndpointHandler& handler) {
    ConnectRequestMessage request = connect_request(0);
    request.first_connection = FirstConnection::no;
    std::byte private_data[ConnectRequestMessage::wire_bytes];
    request.emit(private_data);
    return via.address_.fabric->connect(
        *via.memory_.domain, via.address_.source, via.address_.destination, private_data,
        {.send_queue_depth = send_queue_reserve, .receive_queue_depth = 1}, handler);
}

void ClientPath::established(Connection& connection, Bytes private_data) {
    if (machine_.state() != PathState::connecting) return;  // overtaken by a failure
    dial_ends_.reset();
    const auto response = ConnectResponseMessage::parse(private_data);
    if (!response) return fail(Error::protocol, text(response.error()));
    if (response->error != 0) return fail(from_errno(response->error), "refused by the server");
    if (connection.id == 0) {
        doubt_.answered(environment_.clock.now());
        answers_are_late_ = false;
        chunks_came_ = false;
        local_host_ = host_of(connection.endpoint->local_address());
        features_ = response->features & features_wanted();
        if (const auto usable = accept_first(*response); !usable) return cannot_use(usable.error());
    }
    if (const auto error = prepare_receives(connection)) return fail(error, "receive buffers");
    if (connection.id + 1 < connection_count_) {
        dial(static_cast<std::uint16_t>(connection.id + 1));
    } else {
        handle(PathMachine::Event::all_established);
    }
}

std::expected<void, Unusable> ClientPath::accept_first(const ConnectResponseMessage& response) {
    const auto out_of_memory = [] {
        const std::error_code error = from_errno(ENOMEM);
        return std::unexpected(Unusable{error, error.message()});
    };
    const auto geometry = response.geometry();
    if (!geometry) {
        return std::unexpected(Unusable{
            Error::protocol,
            offer_text(response.queue_depth, response.io_bytes_max, response.header_bytes_max) +
                ": " + text(geometry.error())});
    }
    if (auto usable = owner_.accept_geometry(*this, *geometry); !usable) return usable;
    geometry_ = *geometry;
    key_renewal_ = response.key_renewal;
    codec_ = ImmediateCodec(geometry_.queue_depth);
    if (chunks_.size() != geometry_.queue_depth) {
        chunks_ = LazyArray<BufferDescriptor>(geometry_.queue_depth);
        if (!chunks_) return out_of_memory();
    }
    // Forgets what a lost connection left there.
    sending_ = LazyArray<Sending>(geometry_.queue_depth);
    if (!sending_) return out_of_memory();
    return {};
}

std::error_code ClientPath::prepare_receives(Connection& connection) {
    connection.waiting = LazyQueue<PathRequest>(geometry_.queue_depth);
    if (!connection.waiting) return from_errno(ENOMEM);
    connection.receives =
        connection.id == 0 ? limits::client_service_receives : io_receives(geometry_.queue_depth);
    connection.receive_memory =
        LazyMemory(round_to_page(connection.receives * Connection::small_receive_bytes));
    if (!connection.receive_memory) return from_errno(ENOMEM);
    auto region = memory_.domain->register_memory(connection.receive_memory.bytes(), Access::local);
    if (!region) return region.error();
    connection.receive_region = std::move(*region);
    // The info response comes first on connection 0, so its receive must be first in the queue.
    if (connection.id == 0) {
        if (const auto error = prepare_control(connection)) return error;
    }
    for (std::uint32_t i = 0; i < connection.receives; ++i) {
        const Segment buffer{connection.receive_memory.data() + i * Connection::small_receive_bytes,
                             Connection::small_receive_bytes};
        if (const auto error = connection.endpoint->post_receive(i, buffer)) return error;
    }
    return {};
}

std::error_code ClientPath::prepare_control(Connection& connection) {
    const std::size_t response =
        round_to_page(InfoResponseMessage::wire_bytes_max(geometry_.queue_depth));
    connection.control_memory =
        LazyMemory(round_to_page(response + InfoRequestMessage::wire_bytes));
    connection.info_request_offset = response;
    if (!connection.control_memory) return from_errno(ENOMEM);
    auto region = memory_.domain->register_memory(connection.control_memory.bytes(), Access::local);
    if (!region) return region.error();
    connection.control_region = std::move(*region);
    connection.control_uses = 2;
    return connection.endpoint->post_receive(
        Connection::info_response_context,
        {connection.control_memory.data(), static_cast<std::uint32_t>(response)});
}

void ClientPath::control_used(Connection& connection) noexcept {
    RTRS_ASSERT(connection.control_uses > 0);
    if (--connection.control_uses > 0) return;
    connection.control_region.reset();
    connection.control_memory = {};
}

void ClientPath::send_info_request() {
    // Sent from memory of this connection: the session's memory may receive the answer of a user
    // message at the same time, on another path.
    Connection& connection = *connections_[0];
    std::byte* to = connection.control_memory.data() + connection.info_request_offset;
    InfoRequestMessage{.session_name = options_.name,
                       .identity = sequenced() ? options_.identity : 0,
                       .life = sequenced() ? options_.life : 0}
        .emit({to, InfoRequestMessage::wire_bytes});
    const Segment segment{to, InfoRequestMessage::wire_bytes};
    const WorkRequest work{.opcode = WorkOpcode::send,
                           .signal = Signal::completion,
                           .context = Connection::info_request_context,
                           .local = {&segment, 1}};
    if (const auto error = connection.endpoint->post({&work, 1})) {
        fail(error, "cannot send the info request");
    }
}

void ClientPath::info_response(Connection& connection, const Completion& completion) {
    if (machine_.state() != PathState::exchanging) {
        return fail(Error::protocol, "unexpected info response");
    }
    chunks_came_ = true;
    const auto view =
        InfoResponseView::parse(Bytes(connection.control_memory.bytes()).first(completion.bytes));
    if (!view) return fail(Error::protocol, text(view.error()));
    const auto laid_out = view->chunks({&chunks_[0], chunks_.size()},
                                       geometry_.io_bytes_max + geometry_.header_bytes_max);
    if (!laid_out) return fail(Error::protocol, text(laid_out.error()));
    control_used(connection);
    waits_ = true;
    if (!owner_.has_to_wait(*this)) return session_is_known();
    trace(TraceLevel::debug, "another path is up: waiting until it is known to be in its session");
}

void ClientPath::session_is_known() {
    if (!waits()) return;
    waits_ = false;
    // Asked again, because only now is it known what the other paths support.
    if (const auto usable = owner_.accept_geometry(*this, geometry_); !usable) {
        return cannot_use(usable.error());
    }
    handle(PathMachine::Event::info_accepted);
}

// --- The connection for messages.

void ClientPath::dial_messages() {
    MessageCore* const core = owner_.messages();
    if (!connected() || core == nullptr || (link_ && !link_->drained())) return;
    link_ = std::make_unique<MessageLink>(
        *core, *this, *address_.fabric,
        MessageLink::Carried{address_.worker, silence_max_beside(options_.heartbeat_timeout),
                             packets()});
    ConnectRequestMessage request = connect_request(0);
    request.connection_count = 1;
    request.first_connection = FirstConnection::no;
    request.purpose = ConnectionPurpose::messages;
    std::byte private_data[ConnectRequestMessage::wire_bytes];
    request.emit(private_data);
    const auto error = link_->dial(address_.source, address_.destination, private_data);
    if (!error) return;
    trace(TraceLevel::warning, "cannot dial a connection for messages: " + error.message());
    link_->disconnect();
    if (link_->drained()) link_timer_.arm(environment_.clock.now() + options_.reconnect_delay_max);
}

void ClientPath::message_link_lost(MessageLink&, WasUp was_up, std::error_code reason,
                                   std::string_view why) {
    // If the link was up and is lost, the path is treated as lost too. Otherwise it is dialled
    // again.
    if (was_up == WasUp::yes) return peer_ended(reason, why);
    trace(TraceLevel::debug, std::string(why) + ": " + reason.message());
}

void ClientPath::message_link_drained(MessageLink&) {
    if (connected()) link_timer_.arm(environment_.clock.now() + options_.reconnect_delay_max);
    drained();
}

}  // namespace rtrs
