#include "rtrs/fabric/verbs/listener.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rtrs/fabric/verbs/endpoint.h"

namespace rtrs::verbs {
namespace {

// What rdma_cm leaves of a rejection's private data over IP addresses.
constexpr std::size_t reject_bytes_max = 148;
constexpr int backlog = 1024;

}  // namespace

VerbsConnectRequest::VerbsConnectRequest(std::shared_ptr<Engine> engine, const CmEvent& request)
    : engine_(std::move(engine)),
      request_(request),
      id_(request.id),
      local_address_(to_text(*rdma_get_local_addr(id_))),
      remote_address_(to_text(*rdma_get_peer_addr(id_))) {
    id_->context = static_cast<CmOwner*>(this);
    request_.private_bytes = static_cast<std::uint8_t>(
        std::min<std::size_t>(request.private_bytes, private_data_request_max));
}

VerbsConnectRequest::~VerbsConnectRequest() { reject({}); }

std::expected<std::unique_ptr<Endpoint>, std::error_code> VerbsConnectRequest::accept(
    ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
    EndpointHandler& handler) {
    RTRS_ASSERT(id_ != nullptr);
    if (private_data.size() > private_data_reply_max) return std::unexpected(from_errno(EMSGSIZE));
    if (peer_gone_) {
        rdma_destroy_id(std::exchange(id_, nullptr));
        return std::unexpected(from_errno(ECONNRESET));
    }
    auto endpoint =
        VerbsEndpoint::create({engine_, static_cast<VerbsDomain&>(domain), options, handler});
    if (!endpoint) return std::unexpected(endpoint.error());
    if (const auto error = (*endpoint)->adopt(id_, request_, private_data)) {
        id_->context = static_cast<CmOwner*>(this);
        return std::unexpected(error);
    }
    id_ = nullptr;
    return std::unique_ptr<Endpoint>(std::move(*endpoint));
}

void VerbsConnectRequest::reject(Bytes private_data) {
    if (id_ == nullptr) return;
    const auto bytes = std::min(private_data.size(), reject_bytes_max);
    if (!peer_gone_) (void)rdma_reject(id_, private_data.data(), static_cast<std::uint8_t>(bytes));
    rdma_destroy_id(std::exchange(id_, nullptr));
}

std::expected<std::unique_ptr<VerbsListener>, std::error_code> VerbsListener::create(
    std::shared_ptr<Engine> engine, const Address& address, ListenerHandler& handler) {
    if (const auto error = engine->usable()) return std::unexpected(error);
    std::unique_ptr<VerbsListener> listener(new VerbsListener(std::move(engine), handler));
    if (const auto error = listener->listen(address)) return std::unexpected(error);
    return listener;
}

VerbsListener::~VerbsListener() {
    IntrusiveList<VerbsListener>::remove(*this);
    end();
}

void VerbsListener::end() noexcept {
    if (id_ != nullptr) rdma_destroy_id(std::exchange(id_, nullptr));
}

std::error_code VerbsListener::listen(Address address) {
    const auto id = engine_->create_id(*this);
    if (!id) return id.error();
    id_ = *id;
    if (rdma_bind_addr(id_, address.get()) != 0) {
        return from_errno(errno == ENODEV ? EADDRNOTAVAIL : errno);
    }
    // The wildcard address has no device: each request is looked at when it comes.
    if (id_->verbs != nullptr && !engine_->is_on_device(*id_)) return from_errno(ENODEV);
    if (rdma_listen(id_, backlog) != 0) return from_errno(errno);
    bound_ = copy_of(*rdma_get_local_addr(id_));
    address_ = to_text(bound_);
    return {};
}

// The wildcard address is no device's; the kernel goes on listening there.
void VerbsListener::let_go() noexcept {
    if (id_ != nullptr && id_->verbs != nullptr) end();
}

std::error_code VerbsListener::take_up() {
    if (id_ != nullptr) return {};
    const auto error = listen(bound_);
    if (error) end();
    if (error == std::exchange(told_error_, error)) return error;
    if (error) {
        engine_->trace(TraceLevel::error, address_ + ": cannot listen again: " + error.message());
    }
    return error;
}

void VerbsListener::on_cm_event(const CmEvent& event) {
    if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        handler_.on_connect_request(
            std::make_unique<VerbsConnectRequest>(engine_, event));  // may end the listener
    } else if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        engine_->trace(TraceLevel::error, address_ + ": nobody can connect, the device has gone");
    }
}

}  // namespace rtrs::verbs
