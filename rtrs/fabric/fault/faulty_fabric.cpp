#include "rtrs/fabric/fault/faulty_fabric.h"

#include <algorithm>
#include <cerrno>

#include "rtrs/base/assert.h"
#include "rtrs/fabric/fault/faulty_endpoint.h"

namespace rtrs {

namespace fault {
namespace {

class FaultyDomain final : public ProtectionDomain {
  public:
    FaultyDomain(FaultyFabric& fabric, std::unique_ptr<ProtectionDomain> inner) noexcept
        : fabric_(fabric), inner_(std::move(inner)) {}
    ProtectionDomain& inner() noexcept { return *inner_; }

    std::expected<std::unique_ptr<MemoryRegion>, std::error_code> register_memory(
        MutableBytes memory, Access access) override {
        if (fabric_.refuse(&FaultyFabric::Scripted::registrations,
                           fabric_.options().refuse_registration_per_million)) {
            return std::unexpected(from_errno(ENOMEM));
        }
        return inner_->register_memory(memory, access);
    }

    std::expected<std::unique_ptr<MemoryWindows>, std::error_code> create_windows(
        MemoryRegion& region, std::uint32_t count) override {
        for (std::uint32_t i = 0; i < count; ++i) {
            if (fabric_.refuse(&FaultyFabric::Scripted::windows,
                               fabric_.options().refuse_window_per_million)) {
                return std::unexpected(from_errno(ENOMEM));
            }
        }
        return inner_->create_windows(region, count);
    }

  private:
    FaultyFabric& fabric_;
    std::unique_ptr<ProtectionDomain> inner_;
};

ProtectionDomain& inner_domain(ProtectionDomain& domain) noexcept {
    return static_cast<FaultyDomain&>(domain).inner();
}

class FaultyRequest final : public ConnectRequest {
  public:
    FaultyRequest(FaultyFabric& fabric, std::unique_ptr<ConnectRequest> inner) noexcept
        : fabric_(fabric), inner_(std::move(inner)) {}
    Bytes private_data() const noexcept override { return inner_->private_data(); }
    std::string local_address() const override { return inner_->local_address(); }
    std::string remote_address() const override { return inner_->remote_address(); }
    std::optional<NearestWorker> nearest_worker() const noexcept override {
        return inner_->nearest_worker();
    }
    DescriptorsLeft descriptors_left() const noexcept override {
        const DescriptorsLeft inner = inner_->descriptors_left();
        const DescriptorsLeft ours = fabric_.descriptors_left();
        return {.to_new = std::min(inner.to_new, ours.to_new),
                .to_known = std::min(inner.to_known, ours.to_known)};
    }
    std::expected<std::unique_ptr<Endpoint>, std::error_code> accept(
        ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
        EndpointHandler& handler) override {
        if (fabric_.refuse(&FaultyFabric::Scripted::accepts,
                           fabric_.options().refuse_accept_per_million)) {
            return std::unexpected(from_errno(ENOMEM));
        }
        auto endpoint = std::make_unique<FaultyEndpoint>(fabric_, handler);
        auto inner = inner_->accept(inner_domain(domain), private_data, options, *endpoint);
        if (!inner) return std::unexpected(inner.error());
        endpoint->set_inner(std::move(*inner));
        return endpoint;
    }
    void reject(Bytes private_data) override { inner_->reject(private_data); }

  private:
    FaultyFabric& fabric_;
    std::unique_ptr<ConnectRequest> inner_;
};

class FaultyListener final : public Listener, public ListenerHandler {
  public:
    FaultyListener(FaultyFabric& fabric, ListenerHandler& handler) noexcept
        : fabric_(fabric), handler_(handler) {}
    void set_inner(std::unique_ptr<Listener> inner) { inner_ = std::move(inner); }
    std::string address() const override { return inner_->address(); }
    void on_connect_request(std::unique_ptr<ConnectRequest> request) override {
        if (fabric_.refuse(&FaultyFabric::Scripted::requests,
                           fabric_.options().reject_request_per_million)) {
            request->reject({});
            return;
        }
        handler_.on_connect_request(std::make_unique<FaultyRequest>(fabric_, std::move(request)));
    }

  private:
    FaultyFabric& fabric_;
    ListenerHandler& handler_;
    std::unique_ptr<Listener> inner_;
};

}  // namespace
}  // namespace fault

FaultyFabric::FaultyFabric(Fabric& inner, Clock& clock, const FaultOptions& options)
    : inner_(inner), clock_(clock), options_(options), random_(options.seed) {}

FaultyFabric::~FaultyFabric() = default;

bool FaultyFabric::draw(std::uint32_t per_million) {
    return per_million > 0 && random_.chance(per_million, 1000000);
}

bool FaultyFabric::refuse(std::uint32_t Scripted::* scripted, std::uint32_t per_million) {
    const bool by_script = refuse_next_.*scripted > 0;
    if (by_script) --(refuse_next_.*scripted);
    const bool refused = by_script || draw(per_million);
    if (refused) ++statistics_.refusals;
    return refused;
}

std::expected<std::unique_ptr<ProtectionDomain>, std::error_code> FaultyFabric::create_domain() {
    auto inner = inner_.create_domain();
    if (!inner) return std::unexpected(inner.error());
    return std::make_unique<fault::FaultyDomain>(*this, std::move(*inner));
}

std::expected<std::unique_ptr<Listener>, std::error_code> FaultyFabric::listen(
    const std::string& address, ListenerHandler& handler) {
    if (refuse(&Scripted::listens, options_.refuse_listen_per_million)) {
        return std::unexpected(from_errno(EADDRINUSE));
    }
    auto listener = std::make_unique<fault::FaultyListener>(*this, handler);
    auto inner = inner_.listen(address, *listener);
    if (!inner) return std::unexpected(inner.error());
    listener->set_inner(std::move(*inner));
    return listener;
}

std::expected<std::unique_ptr<Endpoint>, std::error_code> FaultyFabric::connect(
    ProtectionDomain& domain, const std::string& source, const std::string& destination,
    Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) {
    auto endpoint = std::make_unique<fault::FaultyEndpoint>(*this, handler);
    if (refuse(&Scripted::connects, options_.refuse_connect_per_million)) {
        endpoint->refuse(from_errno(ECONNREFUSED));
        return endpoint;
    }
    auto inner = inner_.connect(fault::inner_domain(domain), source, destination, private_data,
                                options, *endpoint);
    if (!inner) return std::unexpected(inner.error());
    endpoint->set_inner(std::move(*inner));
    return endpoint;
}

DescriptorsLeft FaultyFabric::descriptors_left() noexcept {
    std::uint64_t taken = 0;
    endpoints_.for_each([&](const fault::FaultyEndpoint&) { ++taken; });
    return {.to_new = descriptors_.to_new - std::min(descriptors_.to_new, taken),
            .to_known = descriptors_.to_known - std::min(descriptors_.to_known, taken)};
}

void FaultyFabric::lose_connections() {
    // Losing one calls no handler (P3), so the list stays as it is.
    IntrusiveList<fault::FaultyEndpoint> kept;
    while (!endpoints_.empty()) {
        fault::FaultyEndpoint& endpoint = endpoints_.pop_front();
        endpoint.lose();
        kept.push_back(endpoint);
    }
    while (!kept.empty()) endpoints_.push_back(kept.pop_front());
}

void FaultyFabric::stall(Duration duration) {
    ++statistics_.stalls;
    stalled_until_ = std::max(stalled_until_, clock_.now() + duration);
}

void FaultyFabric::stall_newest(Duration duration) {
    ++statistics_.stalls;
    fault::FaultyEndpoint* newest = nullptr;
    endpoints_.for_each([&](fault::FaultyEndpoint& endpoint) { newest = &endpoint; });
    RTRS_ASSERT(newest != nullptr);
    newest->stall(duration);
}

}  // namespace rtrs
