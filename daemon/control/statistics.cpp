#include "daemon/control/statistics.h"

#include <algorithm>
#include <cstdint>

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

// Less than it had then: it is another one of the same name, of which nothing was before.
bool Statistics::is_another(const json& item, const json& then) {
    return std::ranges::any_of(then.items(), [&](const auto& member) {
        return member.value().is_number_unsigned() &&
               item[member.key()].template get<std::uint64_t>() <
                   member.value().template get<std::uint64_t>();
    });
}

json Statistics::document() {
    json items = items_();
    for (json& item : items) {
        const auto begun = begun_.find({item["kind"], item["name"]});
        if (begun == begun_.end()) continue;
        if (is_another(item, begun->second)) {
            begun_.erase(begun);
            continue;
        }
        for (const auto& [key, value] : begun->second.items()) {
            if (!value.is_number_unsigned()) continue;
            item[key] = item[key].get<std::uint64_t>() - value.get<std::uint64_t>();
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
