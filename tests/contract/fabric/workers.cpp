// The TCP fabric in a ReactorGroup: the two ends of each connection on members of their own, and
// the suite on a third. Worth most under TSan.
#include "rtrs/reactor_group.h"
#include "tests/contract/fabric/tcp_under_test.h"

namespace rtrs::contract {
namespace {

constexpr std::uint32_t client_worker = 1;
constexpr std::uint32_t server_worker = 2;

class SpreadRequest final : public ConnectRequest {
  public:
    explicit SpreadRequest(std::unique_ptr<ConnectRequest> inner) : inner_(std::move(inner)) {}
    Bytes private_data() const noexcept override { return inner_->private_data(); }
    std::string local_address() const override { return inner_->local_address(); }
    std::string remote_address() const override { return inner_->remote_address(); }
    DescriptorsLeft descriptors_left() const noexcept override {
        return inner_->descriptors_left();
    }
    std::expected<std::unique_ptr<Endpoint>, std::error_code> accept(
        ProtectionDomain& domain, Bytes private_data, const EndpointOptions& options,
        EndpointHandler& handler) override {
        EndpointOptions there = options;
        there.worker = server_worker;
        return inner_->accept(domain, private_data, there, handler);
    }
    void reject(Bytes private_data) override { inner_->reject(private_data); }

  private:
    std::unique_ptr<ConnectRequest> inner_;
};

class SpreadListener final : public Listener, private ListenerHandler {
  public:
    explicit SpreadListener(ListenerHandler& handler) : handler_(handler) {}
    std::error_code open(Fabric& fabric, const std::string& address) {
        auto inner = fabric.listen(address, *this);
        if (!inner) return inner.error();
        inner_ = std::move(*inner);
        return {};
    }
    std::string address() const override { return inner_->address(); }

  private:
    void on_connect_request(std::unique_ptr<ConnectRequest> request) override {
        handler_.on_connect_request(std::make_unique<SpreadRequest>(std::move(request)));
    }
    ListenerHandler& handler_;
    std::unique_ptr<Listener> inner_;
};

// Asks for a worker of its own for each end.
class SpreadFabric final : public Fabric {
  public:
    explicit SpreadFabric(std::unique_ptr<Fabric> inner) : inner_(std::move(inner)) {}
    const char* name() const noexcept override { return inner_->name(); }
    Duration connect_timeout() const noexcept override { return inner_->connect_timeout(); }
    std::expected<std::unique_ptr<ProtectionDomain>, std::error_code> create_domain() override {
        return inner_->create_domain();
    }
    std::expected<std::unique_ptr<Listener>, std::error_code> listen(
        const std::string& address, ListenerHandler& handler) override {
        auto listener = std::make_unique<SpreadListener>(handler);
        if (const auto error = listener->open(*inner_, address)) return std::unexpected(error);
        return listener;
    }
    std::expected<std::unique_ptr<Endpoint>, std::error_code> connect(
        ProtectionDomain& domain, const std::string& source, const std::string& destination,
        Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) override {
        EndpointOptions there = options;
        there.worker = client_worker;
        return inner_->connect(domain, source, destination, private_data, there, handler);
    }

  private:
    std::unique_ptr<Fabric> inner_;
};

class WorkersUnderTest final : public FabricUnderTest {
  public:
    WorkersUnderTest() : group_(ReactorGroup::create(tcp_.reactor(), {.members = 3}).value()) {
        if (group_->start()) std::abort();
    }
    ~WorkersUnderTest() override { group_->stop(); }
    Fabric& client() override { return client_; }
    Fabric& server() override { return server_; }
    std::string server_address() const override { return tcp_.server_address(); }
    std::string client_host() const override { return tcp_.client_host(); }
    std::string deserted_address() const override { return tcp_.deserted_address(); }
    bool pump_until(const std::function<bool()>& done) override { return tcp_.pump_until(done); }
    void settle() override { tcp_.settle(); }

  private:
    TcpUnderTest tcp_;
    SpreadFabric client_{make_tcp_fabric(tcp_.reactor(), {})};
    SpreadFabric server_{make_tcp_fabric(tcp_.reactor(), {})};
    std::unique_ptr<ReactorGroup> group_;
};

}  // namespace

std::unique_ptr<FabricUnderTest> make_under_test() { return std::make_unique<WorkersUnderTest>(); }

}  // namespace rtrs::contract
