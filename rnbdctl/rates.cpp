#include "rnbdctl/rates.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "rnbdctl/member_text.h"

namespace rnbd {
namespace {

using namespace members;

const json* same_item(const json& document, const json& item) {
    for (const json& one : elements(document, "items")) {
        if (member(one, "kind") == member(item, "kind") &&
            member(one, "name") == member(item, "name"))
            return &one;
    }
    return nullptr;
}

double number(const json& item, const char* key) {
    const json& value = member(item, key);
    return value.is_number() ? value.get<double>() : 0;
}

double business(const json& item) {
    return number(item, "read_bytes") + number(item, "write_bytes") + number(item, "reads") +
           number(item, "writes");
}

// Null if it has counted backwards: it is another one of the same name.
json rate_of(const json& before, const json& after, double elapsed_s) {
    json item{{"kind", member(after, "kind")}, {"name", member(after, "name")}};
    for (const auto& [key, value] : after.items()) {
        if (!unsigned_number(value)) continue;
        const double difference = number(after, key.c_str()) - number(before, key.c_str());
        if (difference < 0) return nullptr;
        item[key] = static_cast<std::uint64_t>(std::llround(difference / elapsed_s));
    }
    return item;
}

}  // namespace

bool counts_anew(const json& after, double elapsed_s) {
    const json& since = member(after, "since_s");
    return since.is_number() && since.get<double>() < elapsed_s;
}

json rates(const json& before, const json& after, double elapsed_s, RateOrder order,
           std::size_t most) {
    json result = after;
    std::vector<json> items;
    for (const json& item : elements(after, "items")) {
        const json* const earlier = same_item(before, item);
        if (earlier == nullptr || !item.is_object()) continue;
        json rate = rate_of(*earlier, item, elapsed_s);
        if (!rate.is_null()) items.push_back(std::move(rate));
    }
    if (order == RateOrder::busiest_first) {
        std::ranges::stable_sort(items, std::greater<>{}, business);
    }
    if (items.size() > most) {
        result["left_out"] = items.size() - most;
        items.resize(most);
    }
    result["items"] = items;
    result["per"] = "second";
    result["since_s"] = elapsed_s;
    return result;
}

}  // namespace rnbd
