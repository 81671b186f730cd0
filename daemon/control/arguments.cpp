#include "daemon/control/arguments.h"

#include <fmt/format.h>

#include <cmath>

#include "daemon/log/log.h"
#include "rtrs/base/seconds.h"

namespace rnbd {

using nlohmann::json;

void ControlArguments::wrong(std::string_view key, std::string_view expected) {
    if (failure_) return;
    failure_ = {ControlError::bad_arguments, fmt::format("{}: expected {}", key, expected)};
}

void ControlArguments::unknown_word(std::string_view key, const json& found,
                                    std::string_view expected) {
    if (!found.is_string()) return wrong(key, expected);
    if (failure_) return;
    failure_ = {ControlError::bad_arguments,
                fmt::format("{}: found \"{}\", expected {}", key,
                            printable(found.get_ref<const std::string&>()), expected)};
}

std::optional<json> ControlArguments::any(const char* key) {
    asked_for_.emplace_back(key);
    const auto found = left_.find(key);
    if (found == left_.end()) return std::nullopt;
    json value = std::move(*found);
    left_.erase(found);
    return value;
}

std::optional<json> ControlArguments::take(const char* key, Need need, std::string_view expected) {
    auto value = any(key);
    if (!value && need != Need::optional) wrong(key, expected);
    return value;
}

std::string ControlArguments::text(const char* key, Need need, std::string_view expected) {
    const auto value = take(key, need, expected);
    if (!value) return "";
    if (value->is_string() &&
        (need != Need::required || !value->get_ref<const std::string&>().empty()))
        return value->get<std::string>();
    wrong(key, expected);
    return "";
}

bool ControlArguments::flag(const char* key) {
    const auto value = any(key);
    if (value && !value->is_boolean()) wrong(key, "true or false");
    return value && value->is_boolean() && value->get<bool>();
}

std::optional<std::uint64_t> ControlArguments::number(const char* key) {
    const auto value = any(key);
    if (!value) return std::nullopt;
    if (value->is_number_unsigned()) return value->get<std::uint64_t>();
    wrong(key, "a whole number");
    return std::nullopt;
}

rtrs::Duration ControlArguments::seconds(const char* key, rtrs::Duration if_absent,
                                         rtrs::Duration max) {
    const auto value = any(key);
    if (!value) return if_absent;
    const double limit = rtrs::in_seconds(max);
    const double wanted = value->is_number() ? value->get<double>() : -1;
    if (wanted >= 0 && wanted <= limit) return rtrs::Duration(std::llround(wanted * 1e9));
    wrong(key, fmt::format("seconds from 0 to {}", limit));
    return if_absent;
}

json ControlArguments::object(const char* key, Need need) {
    auto value = take(key, need, "an object");
    if (!value) return {};
    if (!value->is_object()) wrong(key, "an object");
    return std::move(*value);
}

std::optional<ControlFailure> ControlArguments::failure() {
    if (!failure_ && !left_.empty()) {
        failure_ = {
            ControlError::bad_arguments,
            fmt::format(
                "unknown argument {}, expected {}", printable(left_.begin().key()),
                asked_for_.empty() ? "none" : fmt::format("{}", fmt::join(asked_for_, ", ")))};
    }
    return failure_;
}

}  // namespace rnbd
