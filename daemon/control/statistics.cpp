#include "daemon/control/statistics.h"

#include "rtrs/base/seconds.h"

namespace rnbd {

using nlohmann::json;

Statistics::Statistics(const rtrs::Clock& clock, std::string daemon, Items items)
    : clock_(clock), daemon_(std::move(daemon)), items_(std::move(items)), since_(clock.now()) {}

void Statistics::reset() {
    begun_.clear();
    since_ = clock_.now();
    for (const json& item : items_()) begun_[{item["kind"], item["name"]}] = item;
}

json Statistics::document() const {
    json items = items_();
    for (json& item : items) {
        const auto begun = begun_.find({item["kind"], item["name"]});
        if (begun == begun_.end()) continue;
        for (const auto& [key, value] : begun->second.items()) {
            if (!value.is_number_unsigned()) continue;
            const auto now = item[key].get<std::uint64_t>();
            const auto then = value.get<std::uint64_t>();
            // Fewer than then: another one of the same name.
            item[key] = now >= then ? now - then : now;
        }
    }
    return {{"daemon", daemon_},
            {"since_s", rtrs::in_seconds(clock_.now() - since_)},
            {"items", std::move(items)}};
}

void Statistics::add_commands(ControlServer& control) {
    control.add_command("stats", [this](ControlReply reply) { reply.succeed(document()); });
    control.add_command("stats_reset", [this](ControlReply reply) {
        reset();
        reply.succeed(document());
    });
}

}  // namespace rnbd
