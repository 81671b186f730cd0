// Members of a document as text. If a member is absent or has the wrong type, the functions return
// empty text.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rnbd::members {

using nlohmann::json;

// null if it is absent.
const json& member(const json& object, const char* key);
// The elements of an array member; none if it is not an array.
const json& elements(const json& object, const char* key);
// A text (made safe for a terminal), a boolean as yes or no, or an integer.
std::string word(const json& object, const char* key);
bool unsigned_number(const json& value);
// These use the forms of rnbdctl/units.h.
std::string size(const json& object, const char* key);
std::string count(const json& object, const char* key);
std::string age(const json& object, const char* key);
std::string short_age(const json& object, const char* key);
std::string latency(const json& object, const char* key);
// What happens to a path next, if nothing else happens before: "attempt in 200 ms", "given up in
// 3.1 s" (the attempt under way), "dead in 4.2 s if silent".
std::string next(const json& path);
// The size of a device or an export; empty if it was never open.
std::string volume_size(const json& item);
std::string block_size(const json& item);
// "waiting (no such file)"
std::string state(const json& object);
std::string joined(const json& array, const std::function<std::string(const json&)>& text);
// The text, or "-" if it is empty.
std::string dash(std::string text);

}  // namespace rnbd::members
