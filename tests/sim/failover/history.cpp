#include "tests/sim/failover/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/sim/failover/medium.h"

namespace failover {

History::History(std::uint8_t volume, std::uint32_t blocks, const Medium& medium,
                 Findings& findings, Rule rule)
    : volume_(volume), medium_(medium), findings_(findings), rule_(rule), blocks_(blocks) {
    for (Block& block : blocks_) {
        block.lives.push_back({{.acknowledged = true, .landed = true}});
    }
}

const History::Write* History::find(std::uint32_t block, Number number) const {
    const auto& lives = blocks_[block].lives;
    const std::size_t life = number >> life_shift;
    const std::size_t index = number & ((1u << life_shift) - 1);
    return life < lives.size() && index < lives[life].size() ? &lives[life][index] : nullptr;
}

std::string History::place(std::uint32_t block, Number number) const {
    return fmt::format("volume {} block {} write {:x}", volume_, block, number);
}

void History::fill(rtrs::MutableBytes data, std::uint32_t block, Number number) const noexcept {
    const std::uint64_t word = value(block, number);
    for (std::size_t at = 0; at + 8 <= data.size(); at += 8) std::memcpy(&data[at], &word, 8);
}

Number History::parse(rtrs::Bytes data, std::uint32_t block, const char* who) {
    std::uint64_t word = 0;
    std::memcpy(&word, data.data(), 8);
    const bool torn = std::memcmp(data.data(), data.data() + 8, data.size() - 8) != 0;
    const auto number = static_cast<Number>(word);
    if (torn) {
        findings_.add(fmt::format("{}: torn data", who), place(block, number));
        return 0;
    }
    if (word != value(block, number) || find(block, number) == nullptr) {
        findings_.add(fmt::format("{}: data that was never written there", who),
                      fmt::format("{:x} at {}", word, place(block, 0)));
        return 0;
    }
    return number;
}

Number History::begin_write(std::uint32_t block, std::uint32_t life) {
    auto& lives = blocks_[block].lives;
    if (life >= lives.size()) lives.resize(life + 1);
    auto& writes = lives[life];
    if (writes.empty()) {
        writes.reserve(64);
        writes.emplace_back();  // numbers count from 1
    }
    writes.emplace_back();
    return life << life_shift | static_cast<Number>(writes.size() - 1);
}

void History::landed(std::uint32_t block, Number number, Writer writer) {
    Write& write = at(block, number);
    const Number newest = medium_.content(block);
    if (lawless(block)) {
        // Anything may land.
    } else if (number < newest) {
        findings_.add("a stale write landed over a newer one",
                      fmt::format("{} over {:x}{}", place(block, number), newest,
                                  write.failed         ? ", long given up"
                                  : write.acknowledged ? ", acknowledged before"
                                                       : ""));
    } else if (write.acknowledged) {
        findings_.add("a write landed again after it was acknowledged", place(block, number));
    } else if (write.landed && write.writer == writer && rule_ == Rule::once_per_session) {
        findings_.add("a write ran twice in one server session", place(block, number));
    }
    if (write.landed) ++repeated_;
    write.landed = true;
    write.boot = medium_.boot();
    write.writer = writer;
}

void History::acknowledged(std::uint32_t block, Number number) {
    Block& its = blocks_[block];
    Write& write = at(block, number);
    write.acknowledged = true;
    if (!write.landed) {
        findings_.add("a write was acknowledged that never ran", place(block, number));
    }
    // The answer may have been on its way while the machine crashed.
    const bool there = write.boot == medium_.boot() || number <= medium_.durable(block);
    if (there) its.acknowledged = std::max(its.acknowledged, number);
}

void History::failed(std::uint32_t block, Number number, Failure failure) {
    Block& its = blocks_[block];
    at(block, number).failed = true;
    if (failure == Failure::given_up && rule_ == Rule::may_repeat) its.lawless = true;
}

History::ReadStart History::begin_read(std::uint32_t block) const {
    return {blocks_[block].acknowledged, medium_.durable(block), medium_.boot()};
}

void History::end_read(std::uint32_t block, const ReadStart& start, rtrs::Bytes data) {
    const std::size_t known = findings_.list().size();
    const Number number = parse(data, block, "read");
    if (findings_.list().size() > known) return;
    Number least = start.acknowledged;
    // What was there when it began may have been lost before it ran; what was durable was not.
    if (start.boot != medium_.boot()) least = std::min(least, start.durable);
    if (number < least && !lawless(block)) {
        findings_.add("a read returned what had been overwritten",
                      fmt::format("{}, {:x} was acknowledged", place(block, number), least));
    }
}

void History::crashed() {
    for (std::uint32_t block = 0; block < blocks_.size(); ++block) {
        Block& its = blocks_[block];
        its.acknowledged = std::min(its.acknowledged, medium_.content(block));
    }
}

}  // namespace failover
