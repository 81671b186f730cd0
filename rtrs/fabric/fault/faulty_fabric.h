// A decorator that makes any fabric worse: lost connections, late or stalled events, refused
// memory, refused connections. Faults happen at random (seeded) or by script (from a test, at any
// time). It keeps the promises of fabric.h: what it adds could have happened to any fabric.
//     FaultyFabric fabric(inner, clock, {.seed = 7, .lose_connection_per_million = 50});
//     fabric.options().completion_delay_max = 1ms;   // from now on
//     fabric.lose_connections();                     // now
//
// Domains, endpoints and listeners made by it work only with it; regions and windows are those of
// the inner fabric.
//
// THREAD: that of the inner fabric and of the clock. LIFE: it outlives everything made from it; the
// inner fabric and the clock outlive it.
#pragma once

#include <optional>

#include "rtrs/base/clock.h"
#include "rtrs/base/intrusive_list.h"
#include "rtrs/base/random.h"
#include "rtrs/fabric.h"

namespace rtrs {

namespace fault {
class FaultyEndpoint;
}

struct FaultOptions {
    std::uint64_t seed = 1;

    // When an established connection is lost (both sides see ECONNRESET):
    std::uint32_t lose_connection_per_million = 0;               // chance at each posted request
    std::optional<std::uint64_t> lose_connection_after_posts{};  // after this many posts of its own
    std::optional<Duration> lose_connection_after{};  // after being established for this long

    // Each event (completion, disconnect, ...) reaches the handler up to this much later; order is
    // kept.
    Duration completion_delay_max{0};
    // The peer's messages reach the handler this much later.
    Duration slow_peer{0};
    // Chance at each completion that the endpoint hears nothing for stall_duration.
    std::uint32_t stall_per_million = 0;
    Duration stall_duration{0};

    std::uint32_t refuse_registration_per_million = 0;  // ENOMEM
    std::uint32_t refuse_window_per_million = 0;        // ENOMEM
    std::uint32_t refuse_connect_per_million = 0;       // on_disconnected with ECONNREFUSED
    std::uint32_t reject_request_per_million = 0;       // the dialling side sees on_rejected
    std::uint32_t refuse_accept_per_million = 0;        // ENOMEM
    std::uint32_t refuse_listen_per_million = 0;        // EADDRINUSE
};

class FaultyFabric final : public Fabric {
  public:
    FaultyFabric(Fabric& inner, Clock& clock, const FaultOptions& options);
    ~FaultyFabric() override;

    const char* name() const noexcept override { return inner_.name(); }
    std::string device() const override { return inner_.device(); }
    Duration connect_timeout() const noexcept override { return inner_.connect_timeout(); }
    bool limits_packets() const noexcept override { return inner_.limits_packets(); }
    std::expected<std::unique_ptr<ProtectionDomain>, std::error_code> create_domain() override;
    std::expected<std::unique_ptr<Listener>, std::error_code> listen(
        const std::string& address, ListenerHandler& handler) override;
    std::expected<std::unique_ptr<Endpoint>, std::error_code> connect(
        ProtectionDomain& domain, const std::string& source, const std::string& destination,
        Bytes private_data, const EndpointOptions& options, EndpointHandler& handler) override;

    // May be changed at any time; applies to what happens from then on.
    FaultOptions& options() noexcept { return options_; }
    // Loses every connection that is established now.
    void lose_connections();
    // No endpoint hears anything for this long; what is posted still goes out. disconnect() ends
    // the stall for its endpoint. A stall of many hours is a black hole.
    void stall(Duration duration);
    // The same of the endpoint that was made last, alone.
    void stall_newest(Duration duration);
    // How many of the next attempts of each kind fail, whatever the chances.
    struct Scripted {
        std::uint32_t registrations = 0;
        std::uint32_t windows = 0;
        std::uint32_t connects = 0;
        std::uint32_t requests = 0;
        std::uint32_t accepts = 0;
        std::uint32_t binds = 0;  // their connection ends with EOPNOTSUPP
        std::uint32_t listens = 0;
    };
    Scripted& refuse_next() noexcept { return refuse_next_; }
    // What ConnectRequest::descriptors_left() says while there is no connection. Each takes one.
    void set_descriptors(DescriptorsLeft all) noexcept { descriptors_ = all; }
    DescriptorsLeft descriptors_left() noexcept;

    // What has been done so far.
    struct Statistics {
        std::uint64_t connections_lost = 0;
        std::uint64_t events_delayed = 0;
        std::uint64_t stalls = 0;
        std::uint64_t refusals = 0;
    };
    const Statistics& statistics() const noexcept { return statistics_; }

    // For the objects made from the fabric: whether this attempt is to fail.
    bool refuse(std::uint32_t Scripted::* scripted, std::uint32_t per_million);
    bool draw(std::uint32_t per_million);

  private:
    friend class fault::FaultyEndpoint;

    Fabric& inner_;
    Clock& clock_;
    FaultOptions options_;
    Random random_;
    Scripted refuse_next_;
    DescriptorsLeft descriptors_;
    Statistics statistics_;
    Instant stalled_until_{};
    IntrusiveList<fault::FaultyEndpoint> endpoints_;
};

}  // namespace rtrs
