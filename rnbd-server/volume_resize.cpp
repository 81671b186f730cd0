// Volume: its size, and another one.

#include <algorithm>
#include <utility>

#include "daemon/log/log.h"
#include "rnbd-server/volume.h"
#include "rtrs/base/assert.h"
#include "rtrs/base/error.h"

namespace rnbd {
namespace {

using namespace std::chrono_literals;

// How often it looks whether what was in flight has ended.
constexpr rtrs::Duration resize_interval = 2ms;

}  // namespace

void Volume::warn_of_size() const {
    if (resized_ || !has_another_size()) return;
    const bool larger = geometry_.size_bytes > *config_.storage.size_bytes;
    logger("rnbd.volume")
        .warn(
            "{}: {} has {} bytes, and its configured size is {}: what is there keeps its size; "
            "expected the same in both, or rnbdctl exports resize {} {}{}",
            config_.name, storage_->description(), geometry_.size_bytes,
            *config_.storage.size_bytes, config_.name, *config_.storage.size_bytes,
            larger ? " --shrink (what lies beyond is lost)" : "");
}

void Volume::look_at_size() {
    if (resized_) return;
    if (const auto medium = storage_->last_measured()) note_shortage(*medium);
}

void Volume::note_shortage(std::uint64_t medium_bytes) {
    if (!shortage_.empty() || medium_bytes >= geometry_.size_bytes) return;
    shortage_ =
        storage_->description() + " was made smaller by others: " + std::to_string(medium_bytes) +
        " of the " + std::to_string(geometry_.size_bytes) +
        " bytes that are exported; what lay beyond is lost, and requests there fail until it "
        "is resized or opened again";
    logger("rnbd.volume").error("{}: {}", config_.name, shortage_);
}

StorageError Volume::no_longer_there() const {
    return {rtrs::from_errno(ENODEV), config_.name + ": its storage is gone"};
}

// To that size; as resize() says.
std::expected<std::uint64_t, StorageError> Volume::may_resize(std::optional<std::uint64_t> bytes,
                                                              Shrink shrink) {
    const auto refuse = [&](int error, const std::string& why) {
        return std::unexpected(StorageError{rtrs::from_errno(error), config_.name + ": " + why});
    };
    if (state() == State::waiting) return refuse(ENOENT, "it waits: " + reason_);
    if (resized_) return refuse(EBUSY, "another resize is under way");
    // All exports would wait with it.
    if (const std::string trouble = storage_->trouble(); !trouble.empty()) {
        return refuse(EBUSY, trouble);
    }
    const auto medium = storage_->measure();
    if (!medium) return std::unexpected(medium.error());
    // What was lost would else be zeroes, without a word.
    note_shortage(*medium);
    if (bytes && !shortage_.empty()) {
        return refuse(EINVAL, shortage_ + "; rnbdctl exports resize " + config_.name +
                                  " without a size takes what is there, and then it may be given "
                                  "another one");
    }
    const std::uint64_t wanted = bytes.value_or(*medium);
    const std::uint64_t block = geometry_.logical_block_bytes;
    if (wanted == 0 || wanted % block != 0) {
        return refuse(EINVAL, "its size would be " + std::to_string(wanted) +
                                  " bytes; expected a positive multiple of the block size " +
                                  std::to_string(block));
    }
    if (wanted > export_bytes_max) {
        return refuse(EINVAL, "its size would be " + std::to_string(wanted) +
                                  " bytes; expected at most " + std::to_string(export_bytes_max));
    }
    // Before anything is refused beyond an end that is not to come, and before --shrink is advised.
    if (const auto may = storage_->may_resize(wanted); !may) return std::unexpected(may.error());
    if (wanted < *medium && shrink == Shrink::refused) {
        return refuse(EINVAL, "it has " + std::to_string(*medium) +
                                  " bytes, and what lies beyond " + std::to_string(wanted) +
                                  " would be lost; rnbdctl exports resize --shrink does that");
    }
    return wanted;
}

void Volume::resize(std::optional<std::uint64_t> bytes, Shrink shrink, Resized done) {
    const auto wanted = may_resize(bytes, shrink);
    if (!wanted) return done(std::unexpected(wanted.error()));
    resized_ = std::move(done);
    resize_generation_ = generation_;
    if (*wanted >= geometry_.size_bytes) {
        if (const auto grown = storage_->resize(*wanted); !grown) {
            return end_resize(std::unexpected(grown.error()));
        }
        geometry_.size_bytes = *wanted;
        return end_resize(*wanted);
    }
    // From now on nothing starts beyond the new end.
    geometry_.size_bytes = *wanted;
    ++cuts_;
    for (const auto& open : opens_) open->in_flight_before = open->in_flight;
    finish_resize();
}

void Volume::grow_when_ready(std::optional<std::uint64_t> bytes) {
    RTRS_ASSERT(state() == State::waiting);
    grows_to_ = bytes;
}

void Volume::grow_as_told() {
    const auto bytes = std::exchange(grows_to_, std::nullopt);
    if (!bytes || *bytes == geometry_.size_bytes) return;
    resize(bytes, Shrink::refused, [this](const std::expected<std::uint64_t, StorageError>& size) {
        if (size) return;
        logger("rnbd.volume")
            .error("{}: it does not have the size that was configured while it waited: {}",
                   config_.name, size.error().text);
    });
}

// Cuts the medium, when nothing can write beyond the new end any more.
void Volume::finish_resize() {
    if (gone_ || resize_generation_ != generation_) {
        return end_resize(std::unexpected(no_longer_there()));
    }
    const bool waits =
        std::ranges::any_of(opens_, [](const auto& open) { return open->in_flight_before > 0; });
    if (waits) return resize_timer_.arm(reactor_.now() + resize_interval);
    if (const auto cut = storage_->resize(geometry_.size_bytes); !cut) {
        geometry_.size_bytes = storage_->geometry().size_bytes;
        if (events_ != nullptr) events_->on_volume_keeps_size(*this);
        return end_resize(std::unexpected(cut.error()));
    }
    end_resize(geometry_.size_bytes);
}

void Volume::end_resize(std::expected<std::uint64_t, StorageError> result) {
    const Resized done = std::exchange(resized_, nullptr);
    if (result) {
        shortage_.clear();
        if (config_.storage.size_bytes) config_.storage.size_bytes = *result;
        logger("rnbd.volume").info("{}: has {} bytes now", config_.name, *result);
        if (events_ != nullptr) events_->on_volume_resized(*this);
    }
    done(std::move(result));
}

}  // namespace rnbd
