// The storage of one volume as a server's process sees it: operations take their time, fail, or
// outlive the process that began them.
//
// OWNER: a server machine. A process that dies leaves its operations behind: they land when they
// land. A machine that crashes takes them with it.
// Data is read from (written to) the caller's memory when the operation lands, not before, as a
// device does. ASSUMES: that memory stays, also after the process died.
#pragma once

#include <vector>

#include "tests/sim/failover/history.h"
#include "tests/sim/failover/medium.h"
#include "tests/sim/failover/surroundings.h"

namespace failover {

enum class BlockOperation : std::uint8_t { read, write, write_through, flush };

// Where a write without data is asked for: the place says its number, too.
constexpr std::uint64_t place_of_zeroes(std::uint32_t block, Number number) {
    return std::uint64_t{number} * Medium::blocks_max + block;
}

struct StorageRequest {
    using Completed = void (*)(void* context, int error);
    BlockOperation operation = BlockOperation::read;
    std::uint32_t block = 0;
    Number zeroes = 0;  // a write without data: its number
    rtrs::MutableBytes data{};
    Writer writer = 0;
    Completed completed = nullptr;  // exactly once, never from inside submit()
    void* context = nullptr;
};

// How it behaves now.
struct StorageMood {
    std::uint32_t slow_per_mille = 0;
    std::uint32_t late_per_mille = 0;
    std::uint32_t failing_per_mille = 0;
};

class SimStorage final : public rtrs::sim::EventSink {
  public:
    SimStorage(const Surroundings& surroundings, rtrs::SimHost& host, std::uint8_t volume);

    void submit(const StorageRequest& request);
    // The process died: nobody is told, but what was begun goes on.
    void orphan();
    // Nothing of a dead process is left: its successor may begin.
    bool free_of_orphans() const noexcept { return orphans_ == 0; }
    void crash();
    // What was not flushed is gone, and writes whose end was not heard of fail; all else goes on.
    void lose_cache();
    bool idle() const noexcept { return under_way_ == 0; }

    StorageMood mood;
    Medium medium;
    History history;
    std::uint64_t operations = 0;

  private:
    struct Work {
        StorageRequest request;
        std::uint32_t generation = 0;
        bool busy = false;
        bool orphaned = false;
        bool lands = false;
        bool landed = false;
        int error = 0;
        Number number = 0;
        Medium::Snapshot snapshot{};  // flush: when it began
    };
    enum class Phase : std::uint64_t { land, complete };

    void on_event(std::uint64_t argument) override;
    void schedule(Instant at, std::uint32_t slot, Phase phase);
    void land(Work& work);
    void complete(Work& work, std::uint32_t slot);
    void release(Work& work, std::uint32_t slot);
    void check_writers(const StorageRequest& request);
    Number number_of(const StorageRequest& request, const char* who);
    Duration draw(std::uint32_t least_us, std::uint32_t most_us);

    const Surroundings& surroundings_;
    rtrs::SimWorld& world_;
    rtrs::Random& random_;
    rtrs::SimHost& host_;
    std::vector<Work> works_;
    std::vector<std::uint32_t> free_;
    std::uint32_t under_way_ = 0;
    std::uint32_t orphans_ = 0;
};

}  // namespace failover
