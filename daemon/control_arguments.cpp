#include "daemon/control_arguments.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "rtrs/base/seconds.h"

namespace rnbd {

using nlohmann::json;

void ControlArguments::wrong(const std::string& what) {
    if (!failure_) failure_ = ControlFailure{ControlError::bad_arguments, what};
}

std::optional<json> ControlArguments::take(const char* key, Need need, const char* expected) {
    const auto found = left_.find(key);
    if (found == left_.end()) {
        if (need == Need::required) wrong(fmt::format("{}: expected {}", key, expected));
        return std::nullopt;
    }
    json value = std::move(*found);
    left_.erase(found);
    return value;
}

std::string ControlArguments::text(const char* key, Need need) {
    const auto value = take(key, need, "a text");
    if (!value) return "";
    if (value->is_string() &&
        (need == Need::optional || !value->get_ref<const std::string&>().empty()))
        return value->get<std::string>();
    wrong(fmt::format("{}: expected a text", key));
    return "";
}

bool ControlArguments::flag(const char* key) {
    const auto value = take(key, Need::optional, "");
    if (value && !value->is_boolean()) wrong(fmt::format("{}: expected true or false", key));
    return value && value->is_boolean() && value->get<bool>();
}

std::optional<std::uint64_t> ControlArguments::number(const char* key) {
    const auto value = take(key, Need::optional, "");
    if (!value) return std::nullopt;
    if (value->is_number_unsigned()) return value->get<std::uint64_t>();
    wrong(fmt::format("{}: expected a whole number", key));
    return std::nullopt;
}

rtrs::Duration ControlArguments::seconds(const char* key, rtrs::Duration if_absent,
                                         rtrs::Duration max) {
    const auto value = take(key, Need::optional, "");
    if (!value) return if_absent;
    const double limit = rtrs::in_seconds(max);
    const double wanted = value->is_number() ? value->get<double>() : -1;
    if (wanted >= 0 && wanted <= limit) return rtrs::Duration(std::llround(wanted * 1e9));
    wrong(fmt::format("{}: expected seconds from 0 to {}", key, limit));
    return if_absent;
}

json ControlArguments::object(const char* key, Need need) {
    auto value = take(key, need, "an object");
    if (!value) return {};
    if (!value->is_object()) wrong(fmt::format("{}: expected an object", key));
    return std::move(*value);
}

std::optional<ControlFailure> ControlArguments::failure() {
    if (!left_.empty()) wrong("unknown argument " + left_.begin().key());
    return failure_;
}

}  // namespace rnbd
