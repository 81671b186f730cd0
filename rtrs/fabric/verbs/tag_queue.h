// A tag-matching shared receive queue (TM-SRQ) of an RDMA device, used as a rtrs/tag/device.h
// device.
//
// Written against rdma-core's tag_matching.md, ibv_post_srq_ops(3), ibv_create_cq_ex(3) and the
// behaviour of its mlx5 provider, the only one that has such queues. It was never run on a device:
// the tests drive it through a simulated provider (tests/unit/verbs).
//
// How the queue is used, and what follows from its reports:
//   Q1  Every operation is signalled and names the count; reports come in the order of posting.
//   Q2  A match is reported when the content has arrived. What came after it, matched or not, is
//       held back until then: events come in the order of arrival (D5).
//   Q3  The removal of a tag whose match is known, though not yet reported, does not go to the
//       device, which may have given the tag's handle to another tag. Only the removal's count goes
//       to the device, and the removal is reported as too late.
//   Q4  Whether the count of a removal differs is not passed on, because mlx5 compares with the
//       count at which the tag was added. Nothing is lost by that: a tag that is added too early
//       sleeps (D3), and the report of its adding says so.
//   Q5  Every id, handle, length, header and queue pair that a completion names is checked. An
//       impossible one ends the use of the queue: on_tag_queue_broken().
//
// Contents pass through the queue's own buffers. If the content of a rendezvous fits into one, the
// device may have read it already and told the sender; otherwise the software does both.
//
// OWNER: whoever owns the queue pairs that receive through it; those are destroyed first. THREAD:
// the owner's. Nothing is allocated after construction.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <expected>
#include <memory>
#include <system_error>
#include <vector>

#include "rtrs/base/assert.h"
#include "rtrs/base/bytes.h"
#include "rtrs/tag/device.h"
#include "rtrs/wire/tag.h"

namespace rtrs::verbs {

// What a device can do. If it is nothing, the software matches.
struct TagCapability {
    std::uint32_t tags = 0;        // per queue
    std::uint32_t operations = 0;  // outstanding
    explicit operator bool() const noexcept { return tags != 0; }
};

TagCapability tag_capability(ibv_context* device) noexcept;

struct TagQueueOptions {
    std::uint32_t tags = 64;              // wanted; fewer if the device has fewer
    std::uint32_t receives = 64;          // posted for messages that the device does not match
    std::uint32_t content_bytes = 16384;  // of the longest eager message that senders may send
    std::uint32_t senders = 1;
};

class TagQueueOwner {
  public:
    // A message that no tag can match, with its header: operation no_tag or finished.
    virtual void on_untagged(std::uint32_t sender, Bytes message) = 0;
    // The device failed or broke its rules, or a sender broke ours. No more events come, and
    // nothing is posted any more.
    virtual void on_tag_queue_broken(const char* what) = 0;

  protected:
    ~TagQueueOwner() = default;
};

// What came with the message that is being reported.
struct TagContent {
    // The message is only announced; its content is to be read from `from`.
    bool announced = false;
    RendezvousHeader from{};
    Bytes bytes{};
};

class TagQueue final : public TagDevice {
  public:
    // channel: where completions are announced; may be null. All arguments outlive the queue.
    // ERRORS: EOPNOTSUPP (the device does not match tags), EINVAL (an option is 0 or too large),
    // the device's.
    static std::expected<std::unique_ptr<TagQueue>, std::error_code> create(
        ibv_pd* domain, ibv_comp_channel* channel, const TagQueueOptions& options,
        TagQueueOwner& owner);
    ~TagQueue() override;
    TagQueue(const TagQueue&) = delete;
    TagQueue& operator=(const TagQueue&) = delete;

    // To be called before the first poll().
    void set_handler(TagDeviceHandler& handler) noexcept { handler_ = &handler; }
    // To be called before the queue pair receives. last_number: the number of the message before
    // its first. ASSUMES: at most options.senders, each queue pair once.
    void add_sender(std::uint32_t queue_pair, std::uint32_t sender, std::uint64_t last_number = 0);
    ibv_srq* get() const noexcept { return queue_; }
    ibv_cq* completion_queue() const noexcept { return ibv_cq_ex_to_cq(completions_); }

    std::uint32_t capacity() const noexcept override { return capacity_; }
    // If the device refuses, the next poll() reports it.
    void post(const TagOperation& operation) override;

    // Handles what has completed. False: nothing had. Must not be called from inside an event.
    bool poll();
    // Makes the channel announce the next completion. poll() once more afterwards.
    std::error_code arm() noexcept;
    // Only valid inside on_device_match and on_device_unexpected, and in what those call.
    const TagContent& content() const noexcept { return content_; }

  private:
    // First in, first out, in memory allocated at construction.
    template <typename Value>
    class Queue {
      public:
        explicit Queue(std::uint32_t capacity) : values_(capacity) {}
        bool empty() const noexcept { return count_ == 0; }
        bool full() const noexcept { return count_ == values_.size(); }
        void push(const Value& value) noexcept {
            RTRS_ASSERT(!full());
            values_[(first_ + count_++) % values_.size()] = value;
        }
        const Value& front() const noexcept { return values_[first_]; }
        Value pop() noexcept {
            RTRS_ASSERT(!empty());
            const Value value = values_[first_];
            first_ = (first_ + 1) % values_.size();
            --count_;
            return value;
        }

      private:
        std::vector<Value> values_;
        std::size_t first_ = 0;
        std::size_t count_ = 0;
    };

    // The first eight bits of a work id.
    enum class Work : std::uint8_t { operation = 1, tag = 2, receive = 3 };
    struct WorkId {
        Work work{};
        std::uint32_t generation = 0;  // 24 bits
        std::uint32_t index = 0;
        std::uint64_t pack() const noexcept;
        static WorkId unpack(std::uint64_t id) noexcept;
    };
    struct Slot {
        enum class State : std::uint8_t {
            free,
            held,     // by the device
            matched,  // the content is on its way
            whole,    // to be reported now
        };
        State state = State::free;
        bool announced = false;
        std::uint32_t generation = 0;
        std::uint32_t handle = 0;  // the device's name for the tag
        std::uint32_t buffer = 0;
        std::uint32_t bytes = 0;
        std::uint32_t number = 0;  // low bits of the message's number
        TagMessage message{};
    };
    struct Outstanding {
        TagOperation operation{};
        std::uint64_t id = 0;
        bool too_late = false;  // Q3
    };
    struct Arrival {
        enum class Kind : std::uint8_t { match, unexpected, untagged } kind{};
        std::uint32_t index = 0;  // of the slot or of the receive
        std::uint32_t bytes = 0;
        std::uint32_t sender = 0;  // its place in senders_
    };
    struct Sender {
        std::uint32_t queue_pair = 0;
        std::uint32_t sender = 0;
        std::uint64_t number = 0;  // of the last message
    };
    // Copied, so that nothing else is done while the completion queue is being read.
    struct Completion {
        std::uint64_t id = 0;
        ibv_wc_status status{};
        ibv_wc_opcode opcode{};
        unsigned flags = 0;
        std::uint32_t bytes = 0;
        std::uint32_t queue_pair = 0;
        ibv_wc_tm_info tag{};
        bool has(unsigned flag) const noexcept { return (flags & flag) != 0; }
    };

    TagQueue(const TagQueueOptions& options, std::uint32_t capacity, TagQueueOwner& owner);
    std::error_code open(ibv_pd* domain, ibv_comp_channel* channel);
    std::byte* tag_buffer(std::uint32_t buffer) const noexcept;
    std::byte* receive_buffer(std::uint32_t receive) const noexcept;
    std::error_code post_receive(std::uint32_t receive) noexcept;

    void prepare_add(const TagOperation& operation, ibv_ops_wr& work, ibv_sge& buffer);
    Completion read() noexcept;
    void handle(const Completion& completion);
    void operation_completed(const Completion& completion);
    // False: this report is impossible.
    bool removal_completed(const TagOperation& operation, bool done);
    void tag_completed(const Completion& completion, const WorkId& id);
    bool match(Slot& slot, std::uint32_t index, const Completion& completion);
    bool announce(Slot& slot);
    void receive_completed(const Completion& completion, const WorkId& id);
    void report();
    void report_match(const Arrival& arrival);
    void report_unexpected(const Arrival& arrival);
    Sender* find_sender(std::uint32_t queue_pair) noexcept;
    std::uint64_t number(Sender& sender, std::uint32_t low_bits) noexcept;
    void fail(const char* what);

    const std::uint32_t capacity_;
    const std::uint32_t receives_;
    const std::uint32_t buffer_bytes_;
    const std::uint32_t senders_max_;
    TagQueueOwner& owner_;
    TagDeviceHandler* handler_ = nullptr;
    std::unique_ptr<std::byte[]> memory_;
    ibv_mr* region_ = nullptr;
    ibv_cq_ex* completions_ = nullptr;
    ibv_srq* queue_ = nullptr;
    std::vector<Slot> slots_;
    // One more than there are slots: the content that is being reported keeps its buffer.
    std::vector<std::uint32_t> free_buffers_;
    std::vector<bool> posted_;  // receives
    Queue<Outstanding> outstanding_;
    Queue<Arrival> arrivals_;
    std::vector<Sender> senders_;
    std::uint32_t operations_ = 0;
    TagContent content_{};
    const char* broken_ = nullptr;
    bool told_ = false;
    bool polling_ = false;
};

}  // namespace rtrs::verbs
