// A device behind libibverbs that matches tags: the provider of fake_tag_provider.h with the rules
// and the interleaving of SimTagDevice. Messages have their bytes here, as on the wire.
//
// What it adds of its own, by chance: a content comes later than its match; a rendezvous is read,
// or only announced; messages that no tag matches; handles of tags are used again as soon as
// nothing of them is awaited; messages wait for a receive.
//
// OWNER, THREAD: the test.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "rtrs/base/random.h"
#include "tests/unit/tag/sim_device.h"
#include "tests/unit/verbs/fake_tag_provider.h"

namespace rtrs {

// Whose reports of "the counts differ" it has.
enum class SyncReports : std::uint8_t {
    documented,  // of every operation: the counts differ
    like_mlx5,   // never of a sync; of a removal for other reasons as well
};

class SimTagHardware final : public TagDeviceHandler {
  public:
    struct Figures {
        std::uint64_t late = 0;
        std::uint64_t announced = 0;
        std::uint64_t read = 0;
        std::uint64_t untagged = 0;
        std::uint64_t without_receive = 0;
    };

    SimTagHardware(const ibv_tm_caps& caps, std::uint64_t seed, SimTagDevice::Flaw flaw,
                   SyncReports reports);

    FakeTagProvider& provider() noexcept { return provider_; }
    void send(const TagMessage& message);
    // One thing happens. False: nothing is left but completions.
    bool step();
    const Figures& figures() const noexcept { return figures_; }

    // What a message looks like, for whoever checks it.
    static std::uint32_t queue_pair_of(std::uint32_t sender) noexcept { return 700 + 13 * sender; }
    static bool is_rendezvous(const TagMessage& message) noexcept {
        return (message.number * 7 + message.sender) % 3 == 0;
    }
    static std::byte content_of(const TagMessage& message, std::size_t at) noexcept {
        return std::byte(message.sender * 31 + message.number * 7 + at);
    }
    static std::uint64_t address_of(const TagMessage& message) noexcept {
        return message.number << 16 | message.sender;
    }

  private:
    struct Tag {
        std::uint64_t id = 0;  // of its receive
        MutableBytes buffer{};
        unsigned awaited = 0;  // completions; 0: its handle is free
    };
    struct Operation {
        std::uint64_t id = 0;
        ibv_ops_wr_opcode opcode{};
        std::uint32_t handle = 0;
    };
    struct Event {
        enum class Kind : std::uint8_t { match, unexpected, untagged } kind{};
        std::uint32_t handle = 0;
        TagMessage message{};
    };
    static constexpr std::uint32_t first_handle = 40;

    int operate(ibv_ops_wr& work);
    void polled(const FakeTagProvider::Completion& completion);
    void on_device_match(std::uint32_t slot, const TagMessage& message) override;
    void on_device_unexpected(const TagMessage& message) override;
    void on_device_operation(const TagOperationResult& result) override;
    bool happen();
    bool come_late();
    void match(const Event& event);
    void arrive(const Event& event);

    FakeTagProvider provider_;
    std::uint32_t operations_max_;
    SimTagDevice sim_;
    Random random_;
    SyncReports reports_;
    std::vector<Tag> tags_;
    std::deque<Operation> operations_;
    std::deque<Event> events_;  // in the order of arrival
    std::vector<FakeTagProvider::Completion> late_;
    Figures figures_{};
};

}  // namespace rtrs
