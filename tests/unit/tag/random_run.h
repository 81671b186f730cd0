// Random operations on the matcher, with and without a device, against a naive model.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rtrs/base/random.h"
#include "rtrs/tag/offload_matcher.h"
#include "tests/unit/tag/sim_device.h"

namespace rtrs {

inline constexpr TagLimits random_limits{
    .senders = 3, .receives = 24, .unexpected_messages = 24, .unexpected_bytes = 2000};
inline constexpr unsigned operations_per_round = 48;

// Keeps whole lists, and matches by looking at everything. By rule M8 it may see all receives of a
// round before all messages.
struct NaiveModel {
    std::map<std::uint64_t, TagReceive> receives;  // by context
    std::vector<TagMessage> messages;              // in the order of sending

    std::map<std::uint64_t, std::uint64_t> match() {
        std::map<std::uint64_t, std::uint64_t> matches;  // message -> receive
        std::vector<TagMessage> left;
        for (const TagMessage& message : messages) {
            auto taker = receives.begin();
            while (taker != receives.end() &&
                   (message.tag & taker->second.pattern.mask) != taker->second.pattern.tag) {
                ++taker;
            }
            if (taker == receives.end()) {
                left.push_back(message);
                continue;
            }
            matches[message.context] = taker->first;
            receives.erase(taker);
        }
        messages = left;
        return matches;
    }
};

// Device: as SimTagDevice.
template <typename Device>
class RandomRun final : public TagMatchHandler {
  public:
    // capacity: nullopt is no device at all.
    RandomRun(std::optional<std::uint32_t> capacity, std::uint64_t seed, SimTagDevice::Flaw flaw)
        : random_(seed),
          device_(capacity.value_or(0), seed ^ 0x9e3779b97f4a7c15, flaw),
          with_device_(capacity.has_value()),
          matcher_(random_limits, with_device_ ? &device_ : nullptr, *this) {
        device_.set_handler(matcher_);
    }

    // False: it differs from the model.
    bool round() {
        matches_.clear();
        steps_ = random_.chance(1, 2) ? 1 : 12;
        for (unsigned i = 0; i < operations_per_round && broken_ == nullptr; ++i) operation();
        if (broken_ != nullptr) return false;
        if (with_device_) device_.settle();
        for (const TagMessage& message : accepted_) model_.messages.push_back(message);
        accepted_.clear();
        if (!pending_.empty()) broken_ = "a cancel was never answered";
        return broken_ == nullptr && model_.match() == matches_ &&
               matcher_.lists().unexpected() == model_.messages.size() &&
               matcher_.lists().posted() == model_.receives.size();
    }

    const char* broken() const { return broken_ != nullptr ? broken_ : "other matches"; }
    std::uint64_t matches() const { return matched_; }
    std::uint64_t cancelled() const { return cancelled_; }
    std::uint64_t refused() const { return refused_; }

  private:
    void on_match(const TagMatch& match) override {
        if (!matches_.emplace(match.message.context, match.receive.context).second) {
            broken_ = "a message was matched twice";
        }
        if (match.message.bytes % 7 != match.message.tag) broken_ = "a message was changed";
        live_.erase(match.receive.context);
        pending_.erase(match.receive.context);
        --outstanding_;
        ++matched_;
    }
    void on_cancelled(ReceiveId id, std::uint64_t context) override {
        const auto live = live_.find(context);
        if (live == live_.end() || live->second != id || pending_.erase(context) == 0) {
            broken_ = "a cancel was answered twice";
        }
        forget(context);
    }
    void on_arrival(const TagMessage&, TagArrival kind) override {
        if (kind != TagArrival::unexpected) broken_ = "a message was not taken";
    }
    void on_device_broken(const char* what) override { broken_ = what; }

    void operation() {
        switch (random_.below(16)) {
            case 0 ... 5:
                return send();
            case 6 ... 11:
                return post();
            case 12:
                return cancel();
            default:
                // In some rounds the device keeps up, in others it falls behind.
                for (unsigned i = 0; i < steps_ && with_device_; ++i) device_.step();
        }
    }

    void send() {
        const auto sender = static_cast<std::uint32_t>(random_.below(random_limits.senders));
        const Tag tag = random_.below(7);
        const TagMessage message{.sender = sender,
                                 .number = numbers_[sender],
                                 .tag = tag,
                                 .bytes = 7 * random_.below(10) + tag,
                                 .stored_bytes = random_.below(100),
                                 .context = ++contexts_};
        if (with_device_) {
            // Senders have as much credit as there is room.
            if (outstanding_ == 20) return;
            ++outstanding_;
            ++numbers_[sender];
            accepted_.push_back(message);
            device_.send(message);
            return;
        }
        if (random_.chance(1, 50)) return misnumbered(message);
        ++outstanding_;
        const TagArrival kind = matcher_.arrive(message);
        if (kind == TagArrival::refused) {
            --outstanding_;
            ++refused_;
            return;
        }
        if (kind != TagArrival::matched && kind != TagArrival::unexpected) broken_ = "not in order";
        ++numbers_[sender];
        accepted_.push_back(message);
    }

    void misnumbered(TagMessage message) {
        const bool early = random_.chance(1, 2);
        message.number = early ? message.number + 1 + random_.below(3) : message.number - 1;
        if (matcher_.arrive(message) != (early ? TagArrival::early : TagArrival::duplicate)) {
            broken_ = "a misnumbered message was taken";
        }
    }

    void post() {
        static constexpr Tag masks[] = {whole_tag, whole_tag, 7, 6, 1, 0};
        const Tag mask = masks[random_.below(std::size(masks))];
        const TagReceive receive{.pattern = {.tag = random_.below(7) & mask, .mask = mask},
                                 .capacity_bytes = random_.below(60),
                                 .context = ++contexts_};
        model_.receives[receive.context] = receive;
        live_[receive.context] = ReceiveId{};
        const auto id = matcher_.post(receive);
        if (!id) return forget(receive.context);
        const auto live = live_.find(receive.context);
        if (live != live_.end()) live->second = *id;
    }

    void cancel() {
        if (live_.empty()) return;
        const auto chosen = std::next(live_.begin(), random_.below(live_.size()));
        const std::uint64_t context = chosen->first;
        switch (matcher_.cancel(chosen->second)) {
            case CancelResult::cancelled:
                return forget(context);
            case CancelResult::pending:
                pending_[context] = true;
                return;
            case CancelResult::unknown:
                broken_ = "a posted receive is unknown";
        }
    }

    // As if it had never been posted: it has matched nothing.
    void forget(std::uint64_t context) {
        live_.erase(context);
        model_.receives.erase(context);
        ++cancelled_;
    }

    Random random_;
    Device device_;
    bool with_device_;
    OffloadMatcher matcher_;
    NaiveModel model_;
    std::vector<TagMessage> accepted_;
    std::map<std::uint64_t, std::uint64_t> matches_;
    std::map<std::uint64_t, ReceiveId> live_;
    std::map<std::uint64_t, bool> pending_;
    std::uint64_t numbers_[random_limits.senders] = {1, 1, 1};
    std::uint64_t contexts_ = 0;
    unsigned outstanding_ = 0;
    unsigned steps_ = 1;
    std::uint64_t matched_ = 0;
    std::uint64_t cancelled_ = 0;
    std::uint64_t refused_ = 0;
    const char* broken_ = nullptr;
};

// Rounds until the first difference, at most `rounds`.
template <typename Device>
std::uint64_t rounds_until_different(RandomRun<Device>& run, std::uint64_t rounds) {
    for (std::uint64_t round = 0; round < rounds; ++round) {
        if (!run.round()) return round;
    }
    return rounds;
}

// What main() returns. capacities: what the operations are shared among.
template <typename Device>
int random_main(int count, char** arguments,
                std::initializer_list<std::optional<std::uint32_t>> capacities) {
    const std::uint64_t operations = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 400000;
    const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 1;
    const std::uint64_t rounds = operations / operations_per_round / capacities.size() + 1;
    for (const auto& capacity : capacities) {
        const std::string name =
            capacity ? "a device with " + std::to_string(*capacity) + " tags" : "no device";
        RandomRun<Device> run(capacity, seed, SimTagDevice::Flaw::none);
        const std::uint64_t good = rounds_until_different(run, rounds);
        if (good != rounds) {
            std::printf("seed %llu, %s, round %llu: %s\n", static_cast<unsigned long long>(seed),
                        name.c_str(), static_cast<unsigned long long>(good), run.broken());
            return 1;
        }
        std::printf("%s: %llu operations, %llu matches, %llu cancelled, %llu refused\n",
                    name.c_str(), static_cast<unsigned long long>(rounds * operations_per_round),
                    static_cast<unsigned long long>(run.matches()),
                    static_cast<unsigned long long>(run.cancelled()),
                    static_cast<unsigned long long>(run.refused()));
    }
    RandomRun<Device> flawed(4, seed, SimTagDevice::Flaw::never_sleeps);
    const std::uint64_t found = rounds_until_different(flawed, rounds);
    if (found == rounds) {
        std::printf("a device whose tags never sleep was not noticed\n");
        return 1;
    }
    std::printf("a device whose tags never sleep: noticed in round %llu (%s)\n",
                static_cast<unsigned long long>(found), flawed.broken());
    return 0;
}

}  // namespace rtrs
