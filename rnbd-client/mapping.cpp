#include "rnbd-client/mapping.h"

#include <algorithm>

#include "daemon/log.h"
#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

// How long the connections and the last flush may take before they are cut off.
constexpr rtrs::Duration stop_time = std::chrono::seconds(10);

}  // namespace

Mapping::Mapping(rtrs::Reactor& reactor, rtrs::Tracer& tracer, RemoteSession& session,
                 ClientConfig::Device config, Owner& owner)
    : reactor_(reactor),
      config_(std::move(config)),
      owner_(owner),
      volume_(std::make_unique<RemoteVolume>(
          session, RemoteVolumeOptions{.name = config_.volume, .access = config_.access}, *this)),
      device_(std::make_unique<Device>(
          *volume_,
          DeviceOptions{.name = config_.name,
                        .description = config_.volume + " of session " + session.name()})),
      exports_(std::make_unique<NbdExports>(std::vector<Device*>{device_.get()})),
      stop_timer_(reactor, this, [](void* self) {
          auto& mapping = *static_cast<Mapping*>(self);
          logger("rnbd.device")
              .warn("{}: does not end in time: what is in flight is given up",
                    mapping.config_.name);
          for (const auto& listener : mapping.listeners_) listener->abort_connections();
          mapping.close_volume();
      }) {
    for (const DeviceAddress& address : config_.nbd) {
        const auto parsed = NbdAddress::parse(address.to_string());
        RTRS_ASSERT(parsed);  // the configuration was checked
        listeners_.push_back(std::make_unique<NbdListener>(
            NbdConnection::Environment{reactor, tracer}, *exports_,
            NbdListenerOptions{.address = *parsed}, *this));
    }
}

Mapping::~Mapping() = default;

std::expected<void, std::string> Mapping::start() {
    for (const auto& listener : listeners_) {
        if (const auto opened = listener->open(); !opened) {
            stop();
            return std::unexpected(opened.error().text);
        }
        logger("rnbd.device")
            .info("{}: NBD on {}", config_.name, listener->options().address.text());
    }
    return {};
}

std::size_t Mapping::connections() const noexcept {
    std::size_t count = 0;
    for (const auto& listener : listeners_) count += listener->connections().size();
    return count;
}

void Mapping::stop() {
    if (stopping_) return;
    stopping_ = true;
    logger("rnbd.device").info("{}: stopping", config_.name);
    stop_timer_.arm(reactor_.now() + stop_time);
    for (const auto& listener : listeners_) listener->close();
}

void Mapping::on_listener_closed(NbdListener& listener) {
    std::erase_if(listeners_, [&](const auto& one) { return one.get() == &listener; });
    if (!listeners_.empty()) return;
    if (closing_) return end_if_done();
    flush_then_close();
}

void Mapping::flush_then_close() {
    auto permit = volume_->state() == VolumeState::open &&
                          config_.access != AccessMode::read_only
                      ? volume_->session().rtrs().try_take()
                      : std::nullopt;
    if (!permit) return close_volume();
    volume_->submit(std::move(*permit),
                    {.operation = VolumeOperation::flush,
                     .responded =
                         [](void* context, rtrs::Permit, std::error_code error) {
                             auto& mapping = *static_cast<Mapping*>(context);
                             if (error) {
                                 logger("rnbd.device")
                                     .error("{}: last flush: {}", mapping.config_.name,
                                            error.message());
                             }
                             mapping.close_volume();
                         },
                     .context = this});
}

void Mapping::close_volume() {
    if (closing_) return;
    closing_ = true;
    volume_->close();
}

void Mapping::on_volume_closed(RemoteVolume&) {
    volume_closed_ = true;
    end_if_done();
}

void Mapping::end_if_done() {
    if (!volume_closed_ || !listeners_.empty()) return;
    stop_timer_.disarm();
    owner_.on_mapping_stopped(*this);
}

}  // namespace rnbd
