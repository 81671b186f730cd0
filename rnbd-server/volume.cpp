#include "rnbd-server/volume.h"

#include <algorithm>

#include "daemon/log.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {

struct Volume::LastFlush final : BlockRequest {
    LastFlush(Volume& its_volume, Completed handler) : BlockRequest(handler), volume(its_volume) {}
    Volume& volume;
};

namespace {

using namespace std::chrono_literals;

// A server that was killed may leave its lock for as long as its last I/O takes: look again soon.
constexpr rtrs::Duration retry_delay_min = 20ms;
constexpr rtrs::Duration retry_delay_max = 1s;
constexpr rtrs::Duration check_interval = 1s;

}  // namespace

const char* to_string(Volume::State state) noexcept {
    return state == Volume::State::ready ? "ready" : "waiting";
}

const char* to_string(AccessMode access) noexcept {
    switch (access) {
        case AccessMode::read_only:
            return "ro";
        case AccessMode::read_write:
            return "rw";
        case AccessMode::migration:
            return "migration";
    }
    return "?";
}

Volume::Volume(rtrs::Reactor& reactor, ServerConfig::Export config, EpochBook& epochs)
    : reactor_(reactor),
      config_(std::move(config)),
      epochs_(epochs),
      timer_(reactor, this,
             [](void* self) {
                 auto& volume = *static_cast<Volume*>(self);
                 if (volume.state() == State::ready) {
                     volume.check();
                 } else {
                     volume.try_open();
                 }
             }),
      delay_(retry_delay_min),
      since_(reactor.now()) {
    try_open();
}

Volume::~Volume() { RTRS_ASSERT(opens_.empty()); }

void Volume::try_open() {
    if (storage_) {
        // The old file's last requests are still under way.
        const bool busy =
            std::ranges::any_of(opens_, [](const auto& open) { return open->in_flight > 0; });
        if (busy || last_flush_) {
            timer_.arm(reactor_.now() + delay_);
            return;
        }
        storage_.reset();
    }
    StorageOptions options = config_.storage;
    // A file that was there once is not made anew: an empty one in its place would pass for it.
    if (generation_ > 0 && options.kind == StorageOptions::Kind::path) options.size_bytes.reset();
    auto storage = open_storage(reactor_, options);
    if (!storage) {
        wait(storage.error().text);
        return;
    }
    storage_ = std::move(*storage);
    gone_ = false;
    ++generation_;
    cache_epoch_ = storage_->geometry().cache_epoch;
    // Memory is gone with any end of the process.
    if (options.kind == StorageOptions::Kind::path) {
        cache_epoch_ = epochs_.opened(config_.name, cache_epoch_);
    }
    reason_.clear();
    since_ = reactor_.now();
    delay_ = retry_delay_min;
    logger("rnbd.volume")
        .info("{}: ready: {}, {} bytes", config_.name, storage_->description(),
              storage_->geometry().size_bytes);
    if (options.delay) {
        logger("rnbd.volume")
            .warn(
                "{}: this export delays I/O on purpose (storage: kind: delay); not for data that "
                "somebody waits for",
                config_.name);
    }
    timer_.arm(reactor_.now() + check_interval);
}

void Volume::wait(std::string reason) {
    if (reason != reason_) {
        logger("rnbd.volume").warn("{}: waiting: {}", config_.name, reason);
        since_ = reactor_.now();
    }
    reason_ = std::move(reason);
    timer_.arm(reactor_.now() + delay_);
    delay_ = std::min(2 * delay_, retry_delay_max);
}

void Volume::check() {
    if (const auto error = storage_->check()) {
        gone_ = true;
        delay_ = retry_delay_min;
        wait(storage_->description() + " has vanished: " + error.message() +
             "; requests of those who have it open fail");
        return;
    }
    timer_.arm(reactor_.now() + check_interval);
}

std::error_code Volume::may_open(const std::string& session, const std::string& host,
                                 AccessMode access) const {
    const bool allowed = std::ranges::any_of(config_.allow, [&](const ServerConfig::Allow& allow) {
        return allow.session == session && (!allow.address || allow.address->contains(host)) &&
               access <= allow.access;
    });
    if (!allowed) return rtrs::from_errno(EACCES);
    if (access == AccessMode::read_only) return {};
    if (config_.storage.use == StorageOptions::Use::read_only) return rtrs::from_errno(EROFS);
    const auto writers = std::ranges::count_if(
        opens_, [](const auto& open) { return open->access != AccessMode::read_only; });
    const auto writers_max = access == AccessMode::migration ? 1 : 0;
    if (writers > writers_max) return rtrs::from_errno(EPERM);
    return {};
}

std::expected<Volume::Open*, std::error_code> Volume::open(const std::string& session,
                                                           const std::string& host,
                                                           AccessMode access) {
    if (const auto error = may_open(session, host, access)) return std::unexpected(error);
    if (state() == State::waiting) return std::unexpected(rtrs::from_errno(ENOENT));
    auto open = std::make_unique<Open>(
        Open{.session = session, .access = access, .generation = generation_});
    return opens_.emplace_back(std::move(open)).get();
}

void Volume::close(Open* open) {
    RTRS_ASSERT(open->in_flight == 0);
    std::erase_if(opens_, [&](const auto& one) { return one.get() == open; });
}

void Volume::flush(std::function<void()> done) {
    timer_.disarm();
    if (state() == State::waiting || config_.storage.use == StorageOptions::Use::read_only) {
        reactor_.post(std::move(done));
        return;
    }
    flushed_ = std::move(done);
    last_flush_ =
        std::make_unique<LastFlush>(*this, [](BlockRequest& request, std::error_code error) {
            Volume& volume = static_cast<LastFlush&>(request).volume;
            if (error) {
                logger("rnbd.volume").error("{}: last flush: {}", volume.name(), error.message());
            } else {
                volume.epochs_.flushed(volume.name());
            }
            volume.flushed_();
        });
    last_flush_->operation = BlockOperation::flush;
    storage_->submit(*last_flush_);
}

}  // namespace rnbd
