#include "rnbd-client/mapping.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "daemon/log/log.h"
#include "rnbd-client/kernel_nbd/names.h"
#include "rtrs/base/error.h"
#include "rtrs/base/member_call.h"

namespace rnbd {
namespace {

// How long the connections and the last flush may take before they are cut off.
constexpr rtrs::Duration stop_time = std::chrono::seconds(10);

// What clients that do not ask for the maximum send: those that copy whole devices.
constexpr std::uint32_t common_request_bytes = 256u << 10;

// How long the kernel may take afterwards to let go.
constexpr rtrs::Duration cut_time = std::chrono::seconds(6);

}  // namespace

Mapping::Mapping(rtrs::Reactor& reactor, NbdSockets& sockets, RemoteSession& session,
                 PermitShares& shares, ClientConfig::Device config, std::uint32_t number,
                 const WriterNumbers::Life& former, Owner& owner)
    : reactor_(reactor),
      sockets_(sockets),
      config_(std::move(config)),
      number_(number),
      owner_(owner),
      noted_(former),
      former_(config_.access == AccessMode::read_only ? WriterNumbers::Life{.medium = former.medium}
                                                      : former),
      volume_(std::make_unique<RemoteVolume>(session,
                                             RemoteVolumeOptions{.name = config_.volume,
                                                                 .access = config_.access,
                                                                 .writer = former_.number,
                                                                 .epoch = former_.epoch,
                                                                 .untold_loss = former_.untold_loss,
                                                                 .medium = former_.medium},
                                             *this)),
      device_(std::make_unique<Device>(
          *volume_, shares,
          DeviceOptions{.name = config_.name,
                        .description = config_.volume + " of session " + session.name(),
                        .on_losses_changed = [this] { owner_.on_mapping_changed(*this); }})),
      stop_timer_(reactor, this, rtrs::member_call<&Mapping::on_stop_deadline>) {
    if (!config_.kernel) return;
    // A file system on one that was left is of the writer that mounted it.
    const bool takes_over = former_.number != 0 || config_.access == AccessMode::read_only;
    KernelDeviceOptions options{.identifier = backend_identifier(config_.session, config_.volume),
                                .index = config_.kernel->index,
                                .connections = config_.kernel_connections,
                                .takes_over = takes_over};
    kernel_ = std::make_unique<KernelDevice>(sockets.environment(), netlink_nbd(), *device_,
                                             std::move(options), *this);
}

Mapping::~Mapping() = default;

std::expected<void, std::string> Mapping::start(InUse in_use) {
    const auto timeout = in_use == InUse::waits ? in_use_timeout : rtrs::Duration::zero();
    for (const NbdAddress& address : config_.nbd) {
        const auto attached = while_in_use(
            timeout, [&] { return sockets_.attach(address, *device_); },
            &NbdListener::Failure::error);
        if (!attached) {
            logger("rnbd.device").error("{}: not served: {}", config_.name, attached.error().text);
            stop(KernelNbd::Use::leave);
            // At once, so that it is not opened: the server would not be told of the end of what a
            // former life holds.
            close_volume();
            return std::unexpected(attached.error().text);
        }
        logger("rnbd.device").info("{}: NBD on {}", config_.name, sockets_.bound(address).text());
    }
    return {};
}

std::vector<std::string> Mapping::nbd_addresses() const {
    std::vector<std::string> texts;
    for (const NbdAddress& address : config_.nbd) texts.push_back(sockets_.bound(address).text());
    return texts;
}

void Mapping::on_volume_changed(RemoteVolume&) {
    if (volume_->state() == VolumeState::open && !std::exchange(was_open_, true)) {
        warn_of_short_requests();
    }
    owner_.on_mapping_changed(*this);
    if (kernel_) kernel_->update();
}

// Clients are told, but many do not ask.
void Mapping::warn_of_short_requests() const {
    const std::uint32_t most = device_->describe().block_sizes.maximum_bytes;
    if (config_.nbd.empty() || most >= common_request_bytes) return;
    const rtrs::ClientSession& permits = volume_->session().rtrs();
    logger("rnbd.device")
        .warn(
            "{}: requests of more than {} bytes are refused, and some NBD clients send them: "
            "the server has max_io_size {}, and queue_depth {} of which one is kept",
            config_.name, most, permits.max_io_bytes(), permits.queue_depth());
}

void Mapping::stop(KernelNbd::Use use) {
    if (kernel_ && stopping_ && !kernel_gone_) {
        // The daemon ends during an unmap: what the kernel keeps then comes back.
        with_the_daemon_ = with_the_daemon_ || use == KernelNbd::Use::leave;
        return kernel_->stop(use);
    }
    if (stopping_) return;
    stopping_ = true;
    with_the_daemon_ = use == KernelNbd::Use::leave;
    had_clients_ = connections() > 0;
    device_->set_ending(true);
    logger("rnbd.device").info("{}: stopping", config_.name);
    stop_timer_.arm(reactor_.now() + stop_time);
    if (kernel_) return kernel_->stop(use);
    sockets_.detach(*device_, *this);
}

void Mapping::on_kernel_detached(KernelDevice& kernel) {
    kernel_gone_ = true;
    if (!kernel.loss().empty()) lost(kernel.loss());
    sockets_.detach(*device_, *this);
}

void Mapping::on_kernel_used(KernelDevice&) {
    stopping_ = kernel_cut_ = false;
    device_->set_ending(false);
    stop_timer_.disarm();
    const std::string& reason = kernel_->reason();
    logger("rnbd.device")
        .info("{}: stays: {}{}", config_.name, kernel_->path(),
              reason.empty() ? " is used" : ": " + reason);
    owner_.on_mapping_changed(*this);  // what it was not told of while this one was to go
    owner_.on_mapping_used(*this);
}

void Mapping::on_stop_deadline() {
    if (kernel_ && !kernel_gone_) {
        const bool was_cut = std::exchange(kernel_cut_, true);
        logger("rnbd.device").warn("{}: {} does not end in time", config_.name, kernel_->path());
        kernel_->cut();
        if (!stopping_) return;  // it stays
        // Its requests may wait for the server: closing the volume ends them.
        if (!was_cut) return stop_timer_.arm(reactor_.now() + cut_time);
    }
    // What its clients wait for is not answered any more, and goes on at the server.
    if (!detached_) {
        logger("rnbd.device")
            .warn("{}: does not end in time: its NBD connections are cut off", config_.name);
        aborted_ = true;
    }
    overdue_ = true;
    sockets_.abort(*device_);
    close_volume();
    owner_.on_mapping_overdue(*this);  // may be its end in a later turn
}

void Mapping::on_detached(Device&) {
    detached_ = true;
    if (closing_) return end_if_done();
    flush_then_close();
}

Mapping::LastFlush::LastFlush(Mapping& its_mapping)
    : PermitWaiter([](PermitWaiter& waiter) {
          auto& self = static_cast<LastFlush&>(waiter);
          self.timer.arm(self.mapping.reactor_.now());
      }),
      mapping(its_mapping),
      timer(its_mapping.reactor_, this,
            [](void* self) { static_cast<LastFlush*>(self)->mapping.flush(); }) {
    count = 1;
    permits = std::span(&permit, 1);
}

// Other devices of the session may have all permits.
void Mapping::flush_then_close() {
    const bool writable = config_.access != AccessMode::read_only;
    if (volume_->state() != VolumeState::open || !writable) return close_volume();
    if (volume_->session().rtrs().take_or_wait(last_flush_)) flush();
}

void Mapping::flush() {
    rtrs::Permit permit = std::move(last_flush_.permit);
    if (closing_ || volume_->state() != VolumeState::open) return close_volume();
    volume_->submit(std::move(permit), {.operation = VolumeOperation::flush,
                                        .behind = true,
                                        .responded =
                                            [](void* context, rtrs::Permit, std::error_code error) {
                                                static_cast<Mapping*>(context)->flush_ended(error);
                                            },
                                        .context = this});
}

void Mapping::flush_ended(std::error_code error) {
    // One that was given up is nothing lost if there was nothing to flush; close_volume() knows.
    const bool given_up = error == rtrs::Error::closed || error == rtrs::Error::no_path;
    if (error && !given_up) lost("its last flush failed: " + error.message());
    close_volume();
}

void Mapping::lost(std::string what) {
    logger("rnbd.device").error("{}: {}", config_.name, what);
    if (loss_.empty()) loss_ = std::move(what);
}

void Mapping::close_volume() {
    if (closing_) return;
    closing_ = true;
    if (last_flush_.linked()) volume_->session().rtrs().stop_waiting(last_flush_);
    if (device_->has_untold_losses()) {
        lost("acknowledged writes were lost that were not flushed, and no client was told");
    } else if (!with_the_daemon_ && device_->owes_losses()) {
        lost("acknowledged writes were lost that were not flushed, and not every client was told");
    }
    if (!with_the_daemon_ && beside_noted({}).untold_loss) {
        lost(
            "acknowledged writes were lost before it was mapped to be read, and no client was "
            "told");
    }
    const std::uint64_t unflushed =
        volume_->geometry().write_cache ? volume_->unflushed_writes() : 0;
    if (unflushed > 0 && loss_.empty()) {
        lost(fmt::format("it was closed with {} acknowledged writes that no flush has covered",
                         unflushed));
    }
    // What it holds for NBD clients that wait, or for a kernel's device, was not said to be over.
    const bool held_before = former_.number != 0 && !was_open_;
    // If their cache is lost by then, the next life has to say so.
    const bool unflushed_of_cache = volume_->epoch() != 0 && volume_->unflushed_writes() > 0;
    const bool holds = (kernel_ && kernel_->left()) || aborted_ || held_before ||
                       unflushed_of_cache || volume_->state() == VolumeState::superseded ||
                       volume_->open_error() == rtrs::from_errno(EMEDIUMTYPE);
    may_return_ = with_the_daemon_ && holds;
    volume_->close(may_return_ ? RemoteVolume::Close::may_return : RemoteVolume::Close::for_good);
}

// Before it is open its epoch is that of the life before.
WriterNumbers::Life Mapping::life() const noexcept {
    return beside_noted(
        {volume_->writer(), volume_->epoch(), volume_->medium(), device_->owes_losses()});
}

WriterNumbers::Life Mapping::leaves() const noexcept {
    if (!with_the_daemon_) return {};
    if (may_return_) {
        const bool unflushed = volume_->unflushed_writes() > 0;
        return beside_noted({volume_->writer(), unflushed ? volume_->epoch() : 0, volume_->medium(),
                             device_->owes_losses()});
    }
    // They hold nothing, but may come again, with what they have read; in a later life, if they
    // found nothing to come to in this one.
    const bool may_come = had_clients_ || (former_.medium.known() && !device_->was_used());
    return beside_noted({.medium = may_come ? volume_->medium() : MediumId{},
                         .untold_loss = device_->owes_losses()});
}

// Who only reads can tell nobody of what writers may have lost, so that it stays noted.
WriterNumbers::Life Mapping::beside_noted(const WriterNumbers::Life& life) const noexcept {
    if (config_.access != AccessMode::read_only) return life;
    if (noted_.number == 0 && !noted_.untold_loss) return {.medium = life.medium};
    WriterNumbers::Life both = noted_;
    if (life.medium.known()) both.medium = life.medium;
    return both;
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
