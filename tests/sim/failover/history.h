// What was written to one volume and what came of it; the check that it behaves as disk.
//
// A block is a register. Writes to it are numbered: first by the life of the client (its processes
// come one after the other, the newest is right), then in the order in which they began. The number
// travels in the data, so a landing write and a read say which write they are of. A client process
// has at most one write per block in flight, since one that is unanswered when the server session
// is lost may run again until it is answered: so a greater number of the same life began when the
// smaller had ended. Of a new life nothing runs before everything of the old one has ended.
//
// Why the rules below are enough. Let W be a write with number n.
//   Landing. Numbers that land on a block never go down, and no write lands after it was
//   acknowledged. So a stale attempt cannot destroy newer data, be it a repetition of W (which was
//   answered, or a later one has landed) or a W whose result nobody knows. Where the extension is
//   in force, W also lands at most once per server session.
//   Acknowledgement. W has landed, since the machine started or it was durable.
//   Read. Let f be the newest number acknowledged when the read began: it returns a number >= f.
//   By the landing rule the block never falls behind f afterwards, so what a read returns is the
//   newest acknowledged write or one that overlaps it; a failed write may be seen, but never again
//   once a later one was acknowledged.
//   Crash of the machine. The medium keeps some write between the durable one and the newest; f
//   falls to it. Whether it was right to call a write durable is checked when that is said: a flush
//   that succeeds and a FUA write find their numbers on the durable side. A flush that fails tells
//   the loss, and there the promise ends (VolumeUser).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rtrs/base/bytes.h"
#include "tests/sim/failover/findings.h"

namespace failover {

// Of a write to a block: the life in the upper half, counted from 1. 0 is what was there at first.
using Number = std::uint32_t;
inline constexpr std::uint32_t block_bytes = 512;

// Who brings a write to the storage: a server process and a session of it.
using Writer = std::uint64_t;

class Medium;

class History {
  public:
    // Seen when a read began.
    struct ReadStart {
        Number acknowledged = 0;
        Number durable = 0;
        std::uint32_t boot = 0;
    };
    enum class Rule : std::uint8_t { may_repeat, once_per_session };

    History(std::uint8_t volume, std::uint32_t blocks, const Medium& medium, Findings& findings,
            Rule rule);

    std::uint64_t value(std::uint32_t block, Number number) const noexcept {
        return std::uint64_t{0x51a7} << 48 | std::uint64_t{volume_} << 40 |
               std::uint64_t{block} << 32 | number;
    }
    void fill(rtrs::MutableBytes data, std::uint32_t block, Number number) const noexcept;
    // The write that the data is of; a finding and 0 if it is torn, of no write or of another
    // block.
    Number parse(rtrs::Bytes data, std::uint32_t block, const char* who);

    Number begin_write(std::uint32_t block, std::uint32_t life);
    void landed(std::uint32_t block, Number number, Writer writer);
    void acknowledged(std::uint32_t block, Number number);
    // answered: by the server. Else its result is not known; without the extension such a write may
    // land at any time, and nothing can be said of its block any more.
    enum class Failure : std::uint8_t { answered, given_up };
    void failed(std::uint32_t block, Number number, Failure failure);
    // Its newest write is of a process that may come back after a newer one has lost its session:
    // rnbd-client's lock keeps two of a name away from each other, a server alone cannot.
    void give_up(std::uint32_t block) { blocks_[block].lawless = true; }
    bool lawless(std::uint32_t block) const { return blocks_[block].lawless; }
    ReadStart begin_read(std::uint32_t block) const;
    void end_read(std::uint32_t block, const ReadStart& start, rtrs::Bytes data);
    // The machine lost what was not durable, apart from what the medium now has.
    void crashed();
    // The newest number that is known to be there.
    Number floor(std::uint32_t block) const { return blocks_[block].acknowledged; }
    std::uint64_t repeated() const noexcept { return repeated_; }

  private:
    struct Write {
        bool acknowledged = false;
        bool failed = false;
        bool landed = false;
        std::uint32_t boot = 0;  // of the newest landing
        Writer writer = 0;       // ditto
    };
    struct Block {
        std::vector<std::vector<Write>> lives;
        Number acknowledged = 0;
        bool lawless = false;
    };
    static constexpr unsigned life_shift = 16;
    // Null: there is none.
    const Write* find(std::uint32_t block, Number number) const;
    Write& at(std::uint32_t block, Number number) {
        return const_cast<Write&>(*find(block, number));
    }
    std::string place(std::uint32_t block, Number number) const;

    std::uint8_t volume_;
    const Medium& medium_;
    Findings& findings_;
    Rule rule_;
    std::vector<Block> blocks_;
    std::uint64_t repeated_ = 0;
};

}  // namespace failover
