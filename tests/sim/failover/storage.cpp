#include "tests/sim/failover/storage.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>

namespace failover {

SimStorage::SimStorage(const Surroundings& surroundings, rtrs::SimHost& host, std::uint8_t volume)
    : medium(surroundings.options.blocks),
      history(volume, surroundings.options.blocks, medium, surroundings.findings,
              surroundings.options.exactly_once() ? History::Rule::once_per_session
                                                  : History::Rule::may_repeat),
      surroundings_(surroundings),
      world_(surroundings.world),
      random_(surroundings.random),
      host_(host) {}

Duration SimStorage::draw(std::uint32_t least_us, std::uint32_t most_us) {
    return microseconds(least_us + static_cast<std::uint32_t>(random_.below(most_us - least_us)));
}

void SimStorage::schedule(Instant at, std::uint32_t slot, Phase phase) {
    world_.schedule(at, *this,
                    std::uint64_t{works_[slot].generation} << 32 | std::uint64_t{slot} << 1 |
                        static_cast<std::uint64_t>(phase));
}

// A volume has one writer: a session must not begin before the last operation of another ended.
void SimStorage::check_writers(const StorageRequest& request) {
    for (const Work& work : works_) {
        if (!work.busy || work.request.writer == request.writer) continue;
        if (work.request.operation == BlockOperation::read) continue;
        surroundings_.findings.add(
            "two writers have operations in one storage",
            fmt::format("{:x} and {:x}", work.request.writer, request.writer));
        return;
    }
}

Number SimStorage::number_of(const StorageRequest& request, const char* who) {
    if (request.zeroes == 0) return history.parse(request.data, request.block, who);
    std::array<std::byte, block_bytes> as_data{};
    history.fill(as_data, request.block, request.zeroes);
    return history.parse(as_data, request.block, who);
}

void SimStorage::submit(const StorageRequest& request) {
    ++operations;
    if (request.operation != BlockOperation::read) check_writers(request);
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(works_.size()));
        works_.emplace_back();
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    Work& work = works_[slot];
    work.request = request;
    work.busy = true;
    work.orphaned = work.landed = false;
    work.error =
        random_.chance(mood.failing_per_mille, 1000) ? (random_.chance(1, 2) ? EIO : ENOSPC) : 0;
    work.lands = work.error == 0 || random_.chance(1, 2);
    work.number = 0;
    ++under_way_;
    const bool writes = request.operation == BlockOperation::write ||
                        request.operation == BlockOperation::write_through;
    if (writes) work.number = number_of(request, "write");
    if (request.operation == BlockOperation::flush) work.snapshot = medium.snapshot();

    const Instant now = world_.now();
    Instant end = now + draw(5, 200);
    if (random_.chance(mood.slow_per_mille, 1000)) end = now + draw(1000, 30000);
    if (random_.chance(mood.late_per_mille, 1000)) {
        end = now + draw(surroundings_.options.late_ms * 100, surroundings_.options.late_ms * 1000);
        // Some are done at once and told late.
        if (random_.chance(1, 3)) schedule(now + draw(5, 200), slot, Phase::land);
    }
    schedule(end, slot, Phase::complete);
}

void SimStorage::on_event(std::uint64_t argument) {
    const auto slot = static_cast<std::uint32_t>(argument & 0xffffffffu) >> 1;
    Work& work = works_[slot];
    if (!work.busy || work.generation != argument >> 32) return;
    if (!work.landed) land(work);
    if ((argument & 1) != static_cast<std::uint64_t>(Phase::complete)) return;
    // A stopped process learns later.
    if (!work.orphaned && host_.stalled_until() > world_.now()) {
        return schedule(host_.stalled_until(), slot, Phase::complete);
    }
    complete(work, slot);
}

void SimStorage::land(Work& work) {
    work.landed = true;
    const StorageRequest& request = work.request;
    if (!work.lands) return;
    switch (request.operation) {
        case BlockOperation::read:
            if (!work.orphaned) {
                history.fill(request.data, request.block, medium.content(request.block));
            }
            return;
        case BlockOperation::flush:
            if (work.error == 0) medium.flushed(work.snapshot);
            return;
        case BlockOperation::write:
        case BlockOperation::write_through:
            break;
    }
    const Number number = number_of(request, "landing write");
    if (number != work.number) {
        surroundings_.findings.add(
            "the data of a write changed while the storage had it",
            fmt::format("block {}: {:x} became {:x}", request.block, work.number, number));
    }
    if (!surroundings_.silent) {
        surroundings_.tracer.trace(rtrs::TraceLevel::debug, "storage", "",
                                   fmt::format("{:x} lands: block {} number {:x}, error {}",
                                               request.writer, request.block, number, work.error));
    }
    // Whose cache was lost may have to write again.
    history.landed(request.block, number, request.writer + (Writer{medium.boot()} << 56));
    // If it is found to be stale, the run goes on without it.
    if (number < medium.content(request.block)) return;
    const bool stable = request.operation == BlockOperation::write_through && work.error == 0;
    medium.write(request.block, number, stable ? Medium::Place::stable : Medium::Place::cache);
    world_.mix(history.value(request.block, number));
}

void SimStorage::complete(Work& work, std::uint32_t slot) {
    const StorageRequest request = work.request;
    const int error = work.error;
    const bool told = !work.orphaned;
    release(work, slot);
    if (told) request.completed(request.context, error);
}

void SimStorage::release(Work& work, std::uint32_t slot) {
    work.busy = false;
    ++work.generation;
    --under_way_;
    if (work.orphaned) --orphans_;
    free_.push_back(slot);
}

void SimStorage::orphan() {
    for (Work& work : works_) {
        if (!work.busy || work.orphaned) continue;
        work.orphaned = true;
        ++orphans_;
    }
}

void SimStorage::lose_cache() {
    for (Work& work : works_) {
        const bool writes = work.request.operation == BlockOperation::write ||
                            work.request.operation == BlockOperation::write_through;
        if (!work.busy || !writes) continue;
        if (!work.landed && random_.chance(1, 2)) land(work);
        // It may have ended well just before.
        const bool heard_of = work.landed && random_.chance(1, 2);
        if (heard_of) continue;
        work.landed = true;
        work.error = EIO;
    }
    medium.crash(random_);
    history.crashed();
    for (Work& work : works_) {
        // Asked for again, of a cache that has lost what it was for.
        if (work.busy && work.request.operation == BlockOperation::flush) {
            work.snapshot = medium.snapshot();
        }
    }
}

void SimStorage::crash() {
    for (std::uint32_t slot = 0; slot < works_.size(); ++slot) {
        Work& work = works_[slot];
        if (!work.busy) continue;
        if (!work.landed && random_.chance(1, 3)) land(work);
        release(work, slot);
    }
    medium.crash(random_);
    history.crashed();
}

}  // namespace failover
