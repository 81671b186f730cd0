#include "rnbd-client/mapping.h"

#include "daemon/log.h"
#include "rtrs/base/assert.h"

namespace rnbd {
namespace {

// How long the connections and the last flush may take before they are cut off.
constexpr rtrs::Duration stop_time = std::chrono::seconds(10);

}  // namespace

Mapping::Mapping(rtrs::Reactor& reactor, NbdSockets& sockets, RemoteSession& session,
                 ClientConfig::Device config, Owner& owner)
    : reactor_(reactor),
      sockets_(sockets),
      config_(std::move(config)),
      owner_(owner),
      volume_(std::make_unique<RemoteVolume>(
          session, RemoteVolumeOptions{.name = config_.volume, .access = config_.access}, *this)),
      device_(std::make_unique<Device>(
          *volume_,
          DeviceOptions{.name = config_.name,
                        .description = config_.volume + " of session " + session.name()})),
      stop_timer_(reactor, this, [](void* self) {
          auto& mapping = *static_cast<Mapping*>(self);
          logger("rnbd.device")
              .warn("{}: does not end in time: what is in flight is given up",
                    mapping.config_.name);
          mapping.sockets_.abort(*mapping.device_);
          mapping.close_volume();
      }) {}

Mapping::~Mapping() = default;

std::expected<void, std::string> Mapping::start() {
    for (const DeviceAddress& address : config_.nbd) {
        const auto parsed = NbdAddress::parse(address.to_string());
        RTRS_ASSERT(parsed);  // the configuration was checked
        if (const auto attached = sockets_.attach(*parsed, *device_); !attached) {
            stop();
            return std::unexpected(attached.error());
        }
        logger("rnbd.device").info("{}: NBD on {}", config_.name, parsed->text());
    }
    return {};
}

void Mapping::stop() {
    if (stopping_) return;
    stopping_ = true;
    logger("rnbd.device").info("{}: stopping", config_.name);
    stop_timer_.arm(reactor_.now() + stop_time);
    sockets_.detach(*device_, *this);
}

void Mapping::on_detached(Device&) {
    detached_ = true;
    if (closing_) return end_if_done();
    flush_then_close();
}

void Mapping::flush_then_close() {
    auto permit = volume_->state() == VolumeState::open && config_.access != AccessMode::read_only
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
    if (!volume_closed_ || !detached_) return;
    stop_timer_.disarm();
    owner_.on_mapping_stopped(*this);
}

}  // namespace rnbd
