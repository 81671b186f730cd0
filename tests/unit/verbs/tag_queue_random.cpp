// The random operations of tests/unit/tag/random.cpp through a TM-SRQ: TagQueue and libibverbs's
// calls, down to a simulated provider.
//
//   tag_queue_random [OPERATIONS [SEED]]     for each of two kinds of devices; default 400000
#include <cstdlib>
#include <map>
#include <utility>

#include "rtrs/fabric/verbs/tag_queue.h"
#include "tests/unit/tag/random_run.h"
#include "tests/unit/verbs/sim_tag_hardware.h"

using namespace rtrs;

namespace {

// As SimTagDevice. Checks what arrives against what was sent, and gives it back its context, which
// the wire does not carry.
template <SyncReports reports>
class VerbsTagDevice final : public TagDevice, TagDeviceHandler, verbs::TagQueueOwner {
  public:
    VerbsTagDevice(std::uint32_t capacity, std::uint64_t seed, SimTagDevice::Flaw flaw)
        : random_(seed),
          hardware_({.max_rndv_hdr_size = 64,
                     .max_num_tags = capacity,
                     .flags = IBV_TM_CAP_RC,
                     .max_ops = 2 * capacity + 1,
                     .max_sge = 1},
                    seed, flaw, reports) {
        auto queue = verbs::TagQueue::create(
            hardware_.provider().domain(), nullptr,
            {.tags = 64, .receives = 4, .content_bytes = 100, .senders = random_limits.senders},
            *this);
        require(queue.has_value(), "the queue was not made");
        queue_ = std::move(*queue);
        require(queue_->capacity() == capacity, "another capacity");
        queue_->set_handler(*this);
        for (std::uint32_t sender = 0; sender < random_limits.senders; ++sender) {
            queue_->add_sender(SimTagHardware::queue_pair_of(sender), sender);
        }
    }
    ~VerbsTagDevice() override {
        const auto& figures = hardware_.figures();
        std::printf(
            "    contents after their match %llu, read rendezvous %llu, announced %llu, "
            "untagged %llu, waited for a receive %llu\n",
            static_cast<unsigned long long>(figures.late),
            static_cast<unsigned long long>(figures.read),
            static_cast<unsigned long long>(figures.announced),
            static_cast<unsigned long long>(figures.untagged),
            static_cast<unsigned long long>(figures.without_receive));
        require(untagged_ == figures.untagged, "an untagged message is lost");
        queue_.reset();
        require(hardware_.provider().objects() == 0, "an object is left");
    }

    void set_handler(TagDeviceHandler& handler) noexcept { handler_ = &handler; }
    std::uint32_t capacity() const noexcept override { return queue_->capacity(); }
    void post(const TagOperation& operation) override { queue_->post(operation); }
    void send(const TagMessage& message) {
        sent_[{message.sender, message.number}] = message;
        hardware_.send(message);
    }
    bool step() {
        if (random_.chance(1, 2) && queue_->poll()) return true;
        return hardware_.step() || queue_->poll();
    }
    void settle() {
        while (step()) {
        }
    }

  private:
    static void require(bool condition, const char* what) {
        if (condition) return;
        std::printf("%s\n", what);
        std::exit(1);
    }

    TagMessage check(const TagMessage& message) {
        const auto found = sent_.find({message.sender, message.number});
        require(found != sent_.end(), "a message that was not sent, or twice");
        const TagMessage sent = found->second;
        sent_.erase(found);
        require(message.tag == sent.tag && message.bytes == sent.bytes, "a message has changed");
        const verbs::TagContent& content = queue_->content();
        if (content.announced) {
            require(SimTagHardware::is_rendezvous(sent) && message.stored_bytes == 0 &&
                        content.from.address == SimTagHardware::address_of(sent) &&
                        content.from.key == sent.sender + 5 && content.from.bytes == sent.bytes,
                    "another announcement");
            return sent;
        }
        require(content.bytes.size() == sent.bytes, "another length");
        for (std::size_t i = 0; i < sent.bytes; ++i) {
            require(content.bytes[i] == SimTagHardware::content_of(sent, i), "another content");
        }
        return sent;
    }
    void on_device_match(std::uint32_t slot, const TagMessage& message) override {
        handler_->on_device_match(slot, check(message));
    }
    void on_device_unexpected(const TagMessage& message) override {
        handler_->on_device_unexpected(check(message));
    }
    void on_device_operation(const TagOperationResult& result) override {
        handler_->on_device_operation(result);
    }
    void on_untagged(std::uint32_t sender, Bytes message) override {
        require(sender < random_limits.senders && message.size() == TagHeader::wire_bytes,
                "another untagged message");
        ++untagged_;
    }
    void on_tag_queue_broken(const char* what) override { require(false, what); }

    Random random_;
    SimTagHardware hardware_;
    std::unique_ptr<verbs::TagQueue> queue_;
    TagDeviceHandler* handler_ = nullptr;
    std::map<std::pair<std::uint32_t, std::uint64_t>, TagMessage> sent_;
    std::uint64_t untagged_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
    std::printf("a device as it is documented\n");
    const auto documented = random_main<VerbsTagDevice<SyncReports::documented>>;
    if (documented(count, arguments, {1, 4, 64}) != 0) return 1;
    std::printf("a device that reports like mlx5\n");
    return random_main<VerbsTagDevice<SyncReports::like_mlx5>>(count, arguments, {1, 4, 64});
}
