#include "tests/sim/failover/volume_user.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "tests/sim/failover/client_life.h"

namespace failover {

using rnbd::VolumeOperation;
using rtrs::Error;
using rtrs::from_errno;
using rtrs::Permit;

VolumeUser::VolumeUser(const Surroundings& surroundings, ClientLife& life, ServerVolume& volume)
    : surroundings_(surroundings),
      life_(life),
      storage_(volume.storage),
      history_(volume.storage.history),
      timer_(life.host.clock(), this, [](void* self) { static_cast<VolumeUser*>(self)->tick(); }),
      remap_timer_(life.host.clock(), this,
                   [](void* self) { static_cast<VolumeUser*>(self)->map_again(); }),
      writing_(volume.storage.medium.blocks()),
      volume_(std::make_unique<rnbd::RemoteVolume>(
          life.session, rnbd::RemoteVolumeOptions{volume.name, rnbd::AccessMode::read_write},
          *this)) {}

void VolumeUser::on_volume_closed(rnbd::RemoteVolume&) {
    closed_ = true;
    if (remapping_ && !life_.closing) {
        remap_timer_.arm(surroundings_.world.now() + microseconds(static_cast<std::uint32_t>(
                                                         surroundings_.random.below(2000))));
    }
}

void VolumeUser::remap() {
    if (remapping_ || closed_ || life_.closing) return;
    remapping_ = true;
    if (prepared_) submit(std::move(prepared_));
    volume_->close();
}

// Of what the volume knew of unflushed writes, nothing is left.
void VolumeUser::map_again() {
    if (life_.closing) return;
    closed_ = remapping_ = false;
    promised_ = {};
    const rnbd::RemoteVolumeOptions options = volume_->options();
    volume_.reset();
    volume_ = std::make_unique<rnbd::RemoteVolume>(life_.session, options, *this);
    pump();
}

// --- Permits.

VolumeUser::Waiter::Waiter(VolumeUser& its_user)
    : PermitWaiter([](PermitWaiter& waiter) {
          auto& self = static_cast<Waiter&>(waiter);
          for (Permit& permit : self.permits) self.user.granted_.push_back(std::move(permit));
          self.user.pump();
      }),
      user(its_user) {}

std::optional<Permit> VolumeUser::take_permit() {
    if (granted_.empty()) {
        auto permit = life_.session.rtrs().try_take();
        if (!permit) wait_for_permits();
        return permit;
    }
    Permit permit = std::move(granted_.back());
    granted_.pop_back();
    return permit;
}

void VolumeUser::wait_for_permits() {
    rtrs::ClientSession& session = life_.session.rtrs();
    if (surroundings_.options.waiters == 0 || waiter_.linked() || session.permits_max() == 0) {
        return;
    }
    waiter_.count = 1 + static_cast<std::uint32_t>(
                            surroundings_.random.below(std::min(2u, session.permits_max())));
    waiter_.permits = std::span(waiter_.places).first(waiter_.count);
    if (!session.take_or_wait(waiter_)) return;
    for (Permit& permit : waiter_.permits) granted_.push_back(std::move(permit));
}

void VolumeUser::stop_waiting() {
    if (waiter_.linked()) life_.session.rtrs().stop_waiting(waiter_);
    granted_.clear();
}

VolumeUser::Op& VolumeUser::op(rtrs::PermitId id) {
    const auto index = static_cast<std::size_t>(id);
    if (index >= ops_.size()) ops_.resize(index + 1);
    return ops_[index];
}

void VolumeUser::verify() {
    verify_next_ = storage_.medium.blocks();
    remaining_ = verify_next_ + 5;
    pace_ = {};
    pump();
}

Instant VolumeUser::oldest() const {
    Instant oldest = surroundings_.world.now();
    for (const Op& each : ops_) {
        if (each.busy) oldest = std::min(oldest, each.began);
    }
    return oldest;
}

void VolumeUser::tick() {
    if (prepared_) submit(std::move(prepared_));
    pump();
}

void VolumeUser::pump() {
    if (remapping_) return;
    if (timer_.armed() && pace_ > Duration{0}) return;
    rtrs::Random& random = surroundings_.random;
    while (remaining_ > 0 && !life_.closing && outstanding_ < surroundings_.options.depth) {
        if (!issue() || pace_ > Duration{0}) break;
    }
    if (remaining_ == 0 || life_.closing) stop_waiting();
    if ((remaining_ > 0 || prepared_) && !life_.closing && !timer_.armed()) {
        const auto mean = pace_ > Duration{0} ? pace_ : Duration(std::chrono::milliseconds(1));
        timer_.arm(surroundings_.world.now() + std::chrono::microseconds(20) +
                   Duration(random.below(static_cast<std::uint64_t>(2 * mean.count()))));
    }
}

bool VolumeUser::issue() {
    if (prepared_) return false;
    auto permit = take_permit();
    if (!permit) return false;
    Op& op = this->op(permit->id());
    if (op.busy) surroundings_.findings.add("a permit was handed out twice", "");
    op.busy = true;
    op.began = surroundings_.world.now();
    choose(op);
    prepare(op, *permit);
    trace(op, "begins");
    --remaining_;
    ++outstanding_;
    ++life_.counters.requests;
    // Some fill the buffer long before they send it.
    if (surroundings_.random.chance(1, 4)) {
        prepared_ = std::move(*permit);
        timer_.arm(surroundings_.world.now() +
                   microseconds(static_cast<std::uint32_t>(surroundings_.random.below(300))));
        return false;
    }
    submit(std::move(*permit));
    return true;
}

void VolumeUser::trace(const Op& op, std::string_view what) {
    if (surroundings_.silent) return;
    constexpr std::string_view names[] = {"read", "write", "write-through", "flush"};
    surroundings_.tracer.trace(
        rtrs::TraceLevel::debug, "user", life_.session.name() + "/" + volume_->options().name,
        fmt::format("{} block {} number {:x}: {}", names[static_cast<std::size_t>(op.operation)],
                    op.block, op.number, what));
}

// Often the block whose write has just failed: what is left of that write shows there.
std::uint32_t VolumeUser::choose_block() {
    rtrs::Random& random = surroundings_.random;
    if (last_failed_count_ > 0 && random.chance(1, 2)) {
        --last_failed_count_;
        return last_failed_;
    }
    return static_cast<std::uint32_t>(random.below(writing_.size()));
}

void VolumeUser::choose(Op& op) {
    op.zeroes = false;
    if (verify_next_ > 0) {
        op.operation = BlockOperation::read;
        op.block = --verify_next_;
        return;
    }
    op.block = choose_block();
    const std::uint64_t which = surroundings_.random.below(100);
    op.operation = which < 45   ? BlockOperation::write
                   : which < 55 ? BlockOperation::write_through
                   : which < 90 ? BlockOperation::read
                                : BlockOperation::flush;
    const bool writes =
        op.operation == BlockOperation::write || op.operation == BlockOperation::write_through;
    if (writes && writing_[op.block]) op.operation = BlockOperation::read;
    op.zeroes = surroundings_.options.zeroes != 0 && surroundings_.random.chance(1, 3);
}

void VolumeUser::prepare(Op& op, Permit& permit) {
    switch (op.operation) {
        case BlockOperation::read:
            op.read = history_.begin_read(op.block);
            std::ranges::fill(permit.payload().first(block_bytes), std::byte{0xdd});
            return;
        case BlockOperation::flush:
            return;
        case BlockOperation::write:
        case BlockOperation::write_through:
            writing_[op.block] = true;
            if (life_.superseded) history_.give_up(op.block);
            op.number = history_.begin_write(op.block, life_.number);
            if (!op.zeroes) {
                history_.fill(permit.payload().first(block_bytes), op.block, op.number);
            }
            return;
    }
}

void VolumeUser::submit(Permit permit) {
    Op& op = this->op(permit.id());
    const bool flush = op.operation == BlockOperation::flush;
    const bool read = op.operation == BlockOperation::read;
    const bool zeroes = op.zeroes && !flush && !read;
    if (flush) op.promised = promised_;
    const std::uint64_t block = zeroes ? place_of_zeroes(op.block, op.number) : op.block;
    volume_->submit(std::move(permit),
                    {.operation = flush                ? VolumeOperation::flush
                                  : read               ? VolumeOperation::read
                                  : !zeroes            ? VolumeOperation::write
                                  : op.number % 2 == 0 ? VolumeOperation::discard
                                                       : VolumeOperation::write_zeroes,
                     .force_unit_access = op.operation == BlockOperation::write_through,
                     .offset = flush ? 0 : block * block_bytes,
                     .bytes = flush ? 0 : block_bytes,
                     .responded = responded,
                     .context = this});
}

void VolumeUser::responded(void* context, Permit permit, std::error_code error) {
    static_cast<VolumeUser*>(context)->done(std::move(permit), error);
}

void VolumeUser::done(Permit permit, std::error_code error) {
    Op& op = this->op(permit.id());
    if (!op.busy) surroundings_.findings.add("a request was answered twice", "");
    op.busy = false;
    --outstanding_;
    life_.note_wait({op.began, surroundings_.world.now()});
    if (!surroundings_.silent) trace(op, error ? error.message() : "done");
    if (error) check_error(op, error);
    switch (op.operation) {
        case BlockOperation::read:
            if (!error) history_.end_read(op.block, op.read, permit.payload().first(block_bytes));
            break;
        case BlockOperation::flush:
            flush_done(op, error);
            break;
        case BlockOperation::write:
        case BlockOperation::write_through:
            write_done(op, error);
            break;
    }
    surroundings_.world.mix(std::uint64_t{op.block} << 32 |
                            static_cast<std::uint32_t>(error.value()));
    permit = Permit();
    pump();
}

void VolumeUser::check_error(const Op& op, std::error_code error) {
    ++life_.counters.failed;
    const Options& options = surroundings_.options;
    // Injected, or a loss that is told.
    if (error == from_errno(EIO) || error == from_errno(ENOSPC)) return;
    const bool gave_up =
        options.hold_ms != 0 || options.fail_fast_ms != 0 || options.attempts_max != 0;
    if (error == Error::no_path && gave_up) return;
    if (error == Error::path_lost && options.attempts_max != 0) return;
    if (error == Error::closed && remapping_) return;
    // A path was taken away, and nothing tells what came of what it carried.
    if (error == Error::path_lost && !options.exactly_once()) return;
    if (life_.closing || life_.superseded) return;
    surroundings_.findings.add(
        "a request failed for no reason",
        fmt::format("block {}: {} ({})", op.block, error.message(), error.category().name()));
}

void VolumeUser::give_up_unanswered_writes() {
    for (std::uint32_t block = 0; block < writing_.size(); ++block) {
        if (writing_[block]) history_.give_up(block);
    }
}

void VolumeUser::write_done(const Op& op, std::error_code error) {
    writing_[op.block] = false;
    if (error) {
        const bool answered = error == from_errno(EIO) || error == from_errno(ENOSPC);
        history_.failed(op.block, op.number,
                        answered ? History::Failure::answered : History::Failure::given_up);
        last_failed_ = op.block;
        last_failed_count_ = 4;
        return;
    }
    history_.acknowledged(op.block, op.number);
    if (op.operation == BlockOperation::write_through) {
        // What a superseded twin writes late does not count, and the medium keeps what is newer.
        if (storage_.medium.durable(op.block) < op.number && !history_.lawless(op.block)) {
            surroundings_.findings.add("a FUA write is not durable",
                                       fmt::format("block {} write {:x}: {:x} is", op.block,
                                                   op.number, storage_.medium.durable(op.block)));
        }
    }
    promised_[op.block] = std::max(promised_[op.block], op.number);
}

void VolumeUser::flush_done(const Op& op, std::error_code error) {
    ++life_.counters.flushes;
    if (!error) {
        for (std::uint32_t block = 0; block < writing_.size(); ++block) {
            // A server that does not tell its epoch cannot say that something is gone.
            if (surroundings_.options.epoch == 0) break;
            if (storage_.medium.durable(block) >= op.promised[block]) continue;
            if (history_.lawless(block)) continue;
            surroundings_.findings.add(
                "a flush succeeded over lost writes",
                fmt::format("block {}: {:x} was acknowledged, {:x} is durable", block,
                            op.promised[block], storage_.medium.durable(block)));
        }
        return;
    }
    if (error != from_errno(EIO)) return;
    // What is gone was told now.
    for (std::uint32_t block = 0; block < writing_.size(); ++block) {
        if (promised_[block] <= storage_.medium.content(block)) continue;
        promised_[block] = storage_.medium.content(block);
        ++life_.counters.losses_told;
    }
}

void VolumeUser::close() {
    remaining_ = verify_next_ = 0;
    if (prepared_) submit(std::move(prepared_));
    stop_waiting();
    volume_->close();
}

}  // namespace failover
