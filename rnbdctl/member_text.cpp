#include "rnbdctl/member_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "rnbdctl/units.h"

namespace rnbd::members {

const json& member(const json& object, const char* key) {
    static const json nothing;
    if (!object.is_object()) return nothing;
    const auto found = object.find(key);
    return found == object.end() ? nothing : *found;
}

// The elements of an array member; none if it is no array.
const json& elements(const json& object, const char* key) {
    static const json none = json::array();
    const json& value = member(object, key);
    return value.is_array() ? value : none;
}

std::string word(const json& object, const char* key) {
    const json& value = member(object, key);
    if (value.is_string()) return terminal_text(value.get_ref<const std::string&>());
    if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
    if (value.is_number_integer()) return value.dump();
    return "";
}

bool unsigned_number(const json& value) {
    return value.is_number_unsigned() ||
           (value.is_number_integer() && value.get<std::int64_t>() >= 0);
}

std::string size(const json& object, const char* key) {
    const json& value = member(object, key);
    return unsigned_number(value) ? size_words(value.get<std::uint64_t>()) : "";
}

std::string count(const json& object, const char* key) {
    const json& value = member(object, key);
    return unsigned_number(value) ? count_words(value.get<std::uint64_t>()) : "";
}

std::string age(const json& object, const char* key) {
    const json& value = member(object, key);
    return value.is_number() ? age_words(value.get<double>()) : "";
}

std::string short_age(const json& object, const char* key) {
    const json& value = member(object, key);
    return value.is_number() ? short_age_words(value.get<double>()) : "";
}

std::string latency(const json& object, const char* key) {
    const json& value = member(object, key);
    return value.is_number() ? latency_words(value.get<double>()) : "";
}

std::string next(const json& path) {
    if (const std::string in = short_age(path, "next_attempt_s"); !in.empty())
        return "attempt in " + in;
    if (const std::string in = short_age(path, "gives_up_s"); !in.empty())
        return "given up in " + in;
    const std::string in = short_age(path, "dead_s");
    return in.empty() ? "" : fmt::format("dead in {} if silent", in);
}

std::string volume_size(const json& item) {
    return member(item, "size_bytes") == 0 ? "" : size(item, "size_bytes");  // 0: not known
}

std::string block_size(const json& item) {
    return member(item, "block_size") == 0 ? "" : word(item, "block_size");
}

// "waiting (no such file)"
std::string state(const json& object) {
    const std::string reason = word(object, "reason");
    return reason.empty() ? word(object, "state")
                          : fmt::format("{} ({})", word(object, "state"), reason);
}

std::string joined(const json& array, const std::function<std::string(const json&)>& text) {
    std::string result;
    for (const json& element : array) result += (result.empty() ? "" : ", ") + text(element);
    return result;
}

std::string dash(std::string text) { return text.empty() ? "-" : text; }

}  // namespace rnbd::members
